package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	ns       = "bench"
	appsPath = "/apis/es.your.domain/v1alpha1/namespaces/" + ns + "/eventsourcedapps"
	stsPath  = "/apis/apps/v1/namespaces/" + ns + "/statefulsets"
)

// kube is a minimal unthrottled API client: raw paths, minimal JSON.
type kube struct {
	idx    int
	base   string
	hc     *http.Client
	writes atomic.Int64 // requests sent that are not GET
}

func newKube(idx int, path string) (*kube, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "fleetbench"
	hc, err := rest.HTTPClientFor(cfg)
	return &kube{idx: idx, base: cfg.Host, hc: hc}, err
}

func (k *kube) open(ctx context.Context, method, path, ctype string, body any) (io.ReadCloser, error) {
	var rd io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		rd = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, k.base+path, rd)
	if err != nil {
		return nil, err
	}
	if ctype != "" {
		req.Header.Set("Content-Type", ctype)
	}
	if method != http.MethodGet {
		k.writes.Add(1)
	}
	resp, err := k.hc.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		msg, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		resp.Body.Close()
		return nil, &httpError{resp.StatusCode, fmt.Sprintf("%s %s: %d %s", method, path, resp.StatusCode, msg)}
	}
	return resp.Body, nil
}

type httpError struct {
	code int
	msg  string
}

func (e *httpError) Error() string { return e.msg }

func (k *kube) do(method, path, ctype string, body any) ([]byte, error) {
	rc, err := k.open(context.Background(), method, path, ctype, body)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	return io.ReadAll(rc)
}

func (k *kube) create(path string, body any) error {
	_, err := k.do("POST", path, "application/json", body)
	return err
}

func (k *kube) merge(path string, body any) error {
	_, err := k.do("PATCH", path, "application/merge-patch+json", body)
	return err
}

// object is the part of apps and StatefulSets the driver looks at.
type object struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Replicas int `json:"replicas"`
	} `json:"spec"`
	Status struct {
		Leader         string            `json:"leader"`
		ActiveReplicas *int              `json:"activeReplicas"`
		Conditions     []json.RawMessage `json:"conditions"`
	} `json:"status"`
}

// watch streams objects from rv 0 until ctx ends, resuming after disconnects.
func (k *kube) watch(ctx context.Context, path string, fn func(kind string, o *object, at time.Time)) {
	rv := "0"
	for ctx.Err() == nil {
		rc, err := k.open(ctx, "GET", path+"?watch=1&timeoutSeconds=7200&resourceVersion="+rv, "", nil)
		if err != nil {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		dec := json.NewDecoder(bufio.NewReaderSize(rc, 64<<10))
		for {
			var ev struct {
				Type   string `json:"type"`
				Object object `json:"object"`
			}
			if dec.Decode(&ev) != nil {
				break
			}
			if ev.Type == "ERROR" {
				rv = "0"
				break
			}
			rv = ev.Object.Metadata.ResourceVersion
			fn(ev.Type, &ev.Object, time.Now())
		}
		rc.Close()
	}
}

var reqLine = regexp.MustCompile(`^apiserver_request_total\{(.*)\} ([0-9.e+]+)$`)
var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// requests returns apiserver_request_total per "VERB resource[/sub]", with the code behind it where the request
// was refused, and process CPU seconds of the apiserver.
func (k *kube) requests() (map[string]float64, float64, error) {
	b, err := k.do("GET", "/metrics", "", nil)
	if err != nil {
		return nil, 0, err
	}
	out, cpu := map[string]float64{}, 0.0
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "process_cpu_seconds_total "); ok {
			cpu, _ = strconv.ParseFloat(v, 64)
		}
		m := reqLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		l := map[string]string{}
		for _, kv := range label.FindAllStringSubmatch(m[1], -1) {
			l[kv[1]] = kv[2]
		}
		if l["resource"] == "" { // non-resource: probes, scrapes
			continue
		}
		key := l["verb"] + " " + l["resource"]
		if l["subresource"] != "" {
			key += "/" + l["subresource"]
		}
		if c := l["code"]; strings.HasPrefix(c, "4") || strings.HasPrefix(c, "5") {
			key += " " + c
		}
		v, _ := strconv.ParseFloat(m[2], 64)
		out[key] += v
	}
	return out, cpu, nil
}
