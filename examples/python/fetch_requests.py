"""Fetches a URL into a file with requests: fetch_requests.py URL FILE."""

import sys

import requests

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: fetch_requests.py URL FILE")
    with requests.get(sys.argv[1], stream=True, timeout=60) as response:
        response.raise_for_status()
        with open(sys.argv[2], "wb") as file:
            for block in response.iter_content(1 << 16):
                file.write(block)
