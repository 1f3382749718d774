// A native program of the renderer and of Istio's modules as they are, to compare the component
// with. It reads requests from its standard input and prints an answer for each, one JSON text a
// line.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"mortise/istio-client/renderer"
)

type request struct {
	Spec    string            `json:"spec"`
	Cluster *renderer.Cluster `json:"cluster"`
}

type answer struct {
	Rendered *renderer.Rendered `json:"rendered,omitempty"`
	Error    string             `json:"error,omitempty"`
}

func main() {
	if err := answerAll(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answerAll(in io.Reader, out io.Writer) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var request request
		if err := requests.Decode(&request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		if err := answers.Encode(render(request)); err != nil {
			return fmt.Errorf("print an answer: %w", err)
		}
	}
}

func render(request request) answer {
	rendered, err := renderer.Render(request.Spec, request.Cluster)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Rendered: &rendered}
}
