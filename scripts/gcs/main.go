// An emulator of Google Cloud Storage for tests: fake-gcs-server, and what it lacks of the XML API.
// It reads and lists objects by that API, but stores none without a signed URL, and has no uploads
// in parts, no check of credentials and no answer for missing buckets.
//
// It prints its address.
package main

import (
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// publicHost is the name by which fake-gcs-server takes requests of the XML API.
const publicHost = "gcs.example"

const (
	metadataPrefix   = "X-Goog-Meta-"
	generationMatch  = "X-Goog-If-Generation-Match"
	generationHeader = "X-Goog-Generation"
)

// upload is an unfinished upload in parts.
type upload struct {
	object fakestorage.ObjectAttrs
	parts  map[int][]byte
}

// front answers requests of the XML API.
type front struct {
	server *fakestorage.Server
	// token is the bearer token that requests need, unless it is empty.
	token  string
	bucket string

	mutex   sync.Mutex
	uploads map[string]*upload
	last    int
}

func main() {
	token := flag.String("token", "", "bearer token that requests need")
	bucket := flag.String("bucket", "", "bucket to create")
	flag.Parse()
	options := fakestorage.Options{NoListener: true, PublicHost: publicHost}
	server, err := fakestorage.NewServerWithOptions(options)
	if err != nil {
		log.Fatal(err)
	}
	server.CreateBucket(*bucket)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	handler := &front{
		server:  server,
		token:   *token,
		bucket:  *bucket,
		uploads: map[string]*upload{},
	}
	log.Fatal(http.Serve(listener, handler))
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	id := query.Get("uploadId")
	switch {
	case f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token:
		refuse(w, http.StatusUnauthorized, "AuthenticationRequired", "The token is not valid.")
	case bucket != f.bucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket", "The bucket does not exist.")
	case r.Method == http.MethodPost && query.Has("uploads"):
		f.begin(w, attributes(r, bucket, key))
	case id != "" && !f.has(id):
		refuse(w, http.StatusNotFound, "NoSuchUpload", "The upload does not exist.")
	case r.Method == http.MethodPut && id != "":
		f.part(w, r, id, query.Get("partNumber"))
	case r.Method == http.MethodPost && id != "":
		f.complete(w, r, id)
	case r.Method == http.MethodDelete && id != "":
		f.forget(id)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut:
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		mustBeNew := r.Header.Get(generationMatch) == "0"
		f.store(w, attributes(r, bucket, key), content, mustBeNew, nil)
	default:
		r.Host = publicHost
		f.server.HTTPHandler().ServeHTTP(w, r)
	}
}

// attributes returns what a request says of an object.
func attributes(r *http.Request, bucket, key string) fakestorage.ObjectAttrs {
	metadata := map[string]string{}
	for name, values := range r.Header {
		if rest, found := strings.CutPrefix(name, metadataPrefix); found {
			metadata[strings.ToLower(rest)] = values[0]
		}
	}
	return fakestorage.ObjectAttrs{
		BucketName:  bucket,
		Name:        key,
		ContentType: r.Header.Get("Content-Type"),
		Metadata:    metadata,
	}
}

// store stores an object, and answers with body.
func (f *front) store(
	w http.ResponseWriter,
	object fakestorage.ObjectAttrs,
	content []byte,
	mustBeNew bool,
	body func(etag string) any,
) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if _, err := f.server.GetObject(object.BucketName, object.Name); err == nil && mustBeNew {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "The object exists.")
		return
	}
	f.server.CreateObject(fakestorage.Object{ObjectAttrs: object, Content: content})
	stored, err := f.server.GetObject(object.BucketName, object.Name)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	etag := strconv.Quote(stored.Etag)
	w.Header().Set("ETag", etag)
	w.Header().Set(generationHeader, strconv.FormatInt(stored.Generation, 10))
	if body != nil {
		xml.NewEncoder(w).Encode(body(etag))
	}
}

func (f *front) begin(w http.ResponseWriter, object fakestorage.ObjectAttrs) {
	type InitiateMultipartUploadResult struct{ Bucket, Key, UploadId string }
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.last++
	id := fmt.Sprintf("upload-%d", f.last)
	f.uploads[id] = &upload{object: object, parts: map[int][]byte{}}
	result := InitiateMultipartUploadResult{object.BucketName, object.Name, id}
	xml.NewEncoder(w).Encode(result)
}

func (f *front) has(id string) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.uploads[id] != nil
}

func (f *front) forget(id string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.uploads, id)
}

func (f *front) part(w http.ResponseWriter, r *http.Request, id, number string) {
	index, err := strconv.Atoi(number)
	if err != nil {
		refuse(w, http.StatusBadRequest, "InvalidArgument", "The number of the part is missing.")
		return
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if upload := f.uploads[id]; upload != nil {
		upload.parts[index] = content
	}
	w.Header().Set("ETag", strconv.Quote(fmt.Sprintf("%s-%d", id, index)))
}

func (f *front) complete(w http.ResponseWriter, r *http.Request, id string) {
	var wanted struct {
		Part []struct{ PartNumber int }
	}
	if err := xml.NewDecoder(r.Body).Decode(&wanted); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedCompleteMultipartUploadRequest", err.Error())
		return
	}
	f.mutex.Lock()
	upload := f.uploads[id]
	f.mutex.Unlock()
	var content []byte
	for _, part := range wanted.Part {
		piece, found := upload.parts[part.PartNumber]
		if !found {
			refuse(w, http.StatusBadRequest, "InvalidPart", "A part is missing.")
			return
		}
		content = append(content, piece...)
	}
	type CompleteMultipartUploadResult struct{ Bucket, Key, ETag string }
	f.store(w, upload.object, slices.Clip(content), false, func(etag string) any {
		return CompleteMultipartUploadResult{upload.object.BucketName, upload.object.Name, etag}
	})
	f.forget(id)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	type Error struct{ Code, Message string }
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	xml.NewEncoder(w).Encode(Error{code, message})
}
