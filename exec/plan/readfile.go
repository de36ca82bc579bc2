package plan

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ReadFile reads the plan in the file at path and verifies it.
func ReadFile(path string) (*Plan, error) {
	text, err := ReadText(path)
	if err != nil {
		return nil, err
	}
	p, err := ParseVerified(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// ParseVerified parses the text of a plan and verifies the plan.
func ParseVerified(text []byte) (*Plan, error) {
	p, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return p, Verify(p)
}

// ReadText returns the text of the plan in the file at path. Of a file that does not begin like a plan, which may
// be a large model, it returns only the first bytes, for which Parse has an error.
func ReadText(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError(path, "opened", err)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, HeadSize))
	if err != nil {
		return nil, fileError(path, "read", err)
	}
	if !IsPlan(head) {
		return head, nil
	}
	rest, err := io.ReadAll(f)
	if err != nil {
		return nil, fileError(path, "read", err)
	}
	return append(head, rest...), nil
}

// HeadSize is the number of bytes that IsPlan needs.
const HeadSize = 64

func fileError(path, what string, err error) error {
	var of *os.PathError
	if errors.As(err, &of) {
		err = of.Err
	}
	if path == "" {
		path = `""`
	}
	return fmt.Errorf("%s: cannot be %s: %w", path, what, err)
}
