// Package demo has the embedded model: a small model of architecture qwen2 that tells short
// stories, so that everything can be tried without a download.
//
// It contains the bytes of one GGUF file and imports no package of this module. README.md in this
// folder describes how the model was made and how to make it again.
package demo

import _ "embed"

//go:embed demo.gguf
var model string

// GGUF returns the model file. Each call returns a copy, so that no caller can change the data of
// another.
func GGUF() []byte { return []byte(model) }
