// Package demo holds the embedded model: a small qwen2-architecture model that
// tells short stories, so that everything can be tried without a download.
//
// It owns the bytes of one GGUF file and imports nothing of ours. README.md
// beside it tells how the model was made and how to make it again.
package demo

import _ "embed"

//go:embed demo.gguf
var model string

// GGUF returns the model file. Each call copies it, so that no caller can change
// what another one reads.
func GGUF() []byte { return []byte(model) }
