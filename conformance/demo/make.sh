#!/bin/sh
# Makes demo.gguf from scratch: about 15 minutes on two free cores.
# After an interruption it continues from the last multiple of 50 steps.
set -eu
cd "$(dirname "$0")"
test -x .venv/bin/python || python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
.venv/bin/python train.py weights.npz
.venv/bin/python export.py weights.npz float32.gguf
go run ./quantize float32.gguf demo.gguf
.venv/bin/python check_demo.py float32.gguf demo.gguf
