package main

import "testing"

func TestDeviceValue(t *testing.T) {
	for text, want := range map[string]string{
		"cpu": "cpu", "CPU": "cpu", "virtual": "virtual", "virtual:1": "virtual:1", "cuda": "cuda:0", "cuda:0": "cuda:0", "Cuda:12": "cuda:12",
		"": "", "gpu": "", "cpu:0": "", "cuda:": "", "cuda:-1": "", "cuda:x": "", "cuda:1:2": "", "cuda:99999999999999999999": "", "0": "", ":0": "",
		"cuda:0,cuda:1": "cuda:0,cuda:1", "cuda:2,CUDA:0": "cuda:2,cuda:0", "virtual,virtual:1": "virtual:0,virtual:1",
		"cuda:0,cuda:0": "", "cuda:0,virtual:1": "", "cuda:0,": "", ",": "", "cpu,cpu": "", "cpu,cuda:0": "", "cuda,cuda": "",
	} {
		var d device
		err := d.Set(text)
		if want == "" {
			if err == nil || err.Error() != "expected cpu, virtual, cuda:N" || d.word != "" {
				t.Errorf("%q is %q, error %v", text, d.String(), err)
			}
		} else if err != nil || d.String() != want {
			t.Errorf("%q is %q, error %v; expected %q", text, d.String(), err, want)
		}
	}
}
