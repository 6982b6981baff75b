// Fetches a URL into a file: go run fetch.go URL FILE.
//
// A Go program makes its own system calls, so `longhaul run` cannot reach it. It goes by an on-ramp's SOCKS entry where
// HTTPS_PROXY or HTTP_PROXY says so, as every client of Go's standard library does:
//
//	HTTP_PROXY=socks5://127.0.0.1:1080 go run fetch.go http://server.example/data data
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func fetch(url, path string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, response.Body); err != nil {
		return err
	}
	return file.Close()
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fetch URL FILE")
		os.Exit(2)
	}
	if err := fetch(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
