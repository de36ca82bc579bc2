package main

import (
	"errors"
	"fmt"

	"pesti/exec/sample"
)

// fieldFlags are the flags of fields that errors of packages name.
var fieldFlags = map[string]string{
	"Temp": "temp", "TopK": "top-k", "TopP": "top-p", "MinP": "min-p", "RepeatPenalty": "repeat-penalty", "RepeatLast": "repeat-last",
}

// withFlag returns an error about a field as one about its flag.
func withFlag(err error) error {
	var p *sample.ParamError
	if errors.As(err, &p) {
		return fmt.Errorf("--%s %s", fieldFlags[p.Field], p.Text())
	}
	return err
}
