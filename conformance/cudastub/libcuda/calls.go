package main

import "C"

import (
	"encoding/hex"
	"fmt"
	"unsafe"

	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
)

// --- the process ---

//export cuInit
func cuInit(flags uint32) code {
	return call("cuInit", fmt.Sprintf("flags=%d", flags), func() code { return success })
}

//export cuDriverGetVersion
func cuDriverGetVersion(version *int32) code {
	return call("cuDriverGetVersion", "", func() code {
		*version = int32(driver().Version())
		return success
	})
}

// texts has the driver's texts for codes without an error of the virtual device.
var texts = map[code]string{
	invalidValue:   "invalid argument",
	noDevice:       "no CUDA-capable device is detected",
	invalidHandle:  "invalid resource handle",
	illegalAddress: "an illegal memory access was encountered",
}

//export cuGetErrorString
func cuGetErrorString(c code, text **C.char) code {
	lib.Lock()
	defer lib.Unlock()
	if lib.texts[c] == nil && texts[c] != "" {
		lib.texts[c] = C.CString(texts[c])
	}
	if *text = lib.texts[c]; *text == nil {
		return invalidValue
	}
	return success
}

// --- the device and its context ---

//export cuDeviceGetCount
func cuDeviceGetCount(count *int32) code {
	return call("cuDeviceGetCount", "", func() code {
		*count = int32(devices())
		return success
	})
}

//export cuDeviceGet
func cuDeviceGet(device *int32, n int32) code {
	return call("cuDeviceGet", fmt.Sprint(n), func() code {
		*device = n
		if n < 0 || int(n) >= devices() {
			return invalidDevice
		}
		return success
	})
}

//export cuDeviceGetName
func cuDeviceGetName(name *byte, size, device int32) code {
	return call("cuDeviceGetName", fmt.Sprint(device), func() code {
		b := unsafe.Slice(name, size)
		b[copy(b[:size-1], "stub")] = 0
		return success
	})
}

//export cuDeviceGetAttribute
func cuDeviceGetAttribute(value *int32, attribute, device int32) code {
	return call("cuDeviceGetAttribute", fmt.Sprint(attribute), func() code {
		p := virtual.Default()
		v, ok := map[int32]int{
			16: p.SMs,
			36: 0, // memory clock: there is none
			37: 0, // and no bus
			38: p.L2,
			75: p.Major,
			76: p.Minor,
			97: p.Shared, // with opt-in by the function
		}[attribute]
		if !ok {
			return invalidValue
		}
		*value = int32(v)
		return success
	})
}

//export cuDeviceTotalMem_v2
func cuDeviceTotalMem_v2(bytes *uint64, device int32) code {
	return call("cuDeviceTotalMem_v2", fmt.Sprint(device), func() code {
		*bytes = uint64(virtual.Default().Memory)
		return success
	})
}

//export cuCtxCreate_v2
func cuCtxCreate_v2(context *handle, flags uint32, device int32) code {
	return call("cuCtxCreate_v2", fmt.Sprintf("flags=%d device=%d", flags, device), func() code {
		d, err := driver().Open(int(device))
		if err != nil {
			return fails(invalidDevice, err)
		}
		lib.device = d
		*context = give(d)
		return success
	})
}

//export cuCtxSetCurrent
func cuCtxSetCurrent(context handle) code {
	lib.Lock()
	defer lib.Unlock()
	return with(context, func(d cuda.Device) code {
		lib.device = d
		return success
	})
}

// Destroying a context frees everything in it, as a GPU's driver does. Unlike with a GPU's driver, the
// process can open another context after a trap.
//
//export cuCtxDestroy_v2
func cuCtxDestroy_v2(context handle) code {
	return call("cuCtxDestroy_v2", "", func() code {
		return end(context, func(d cuda.Device) error {
			lib.trapped = success
			if err := d.Close(); err != nil {
				note(err.Error())
			}
			return nil
		})
	})
}

//export cuDeviceCanAccessPeer
func cuDeviceCanAccessPeer(can *int32, device, other int32) code {
	return call("cuDeviceCanAccessPeer", fmt.Sprintf("%d %d", device, other), func() code {
		*can = 0
		if device != other {
			*can = 1
		}
		return success
	})
}

//export cuCtxEnablePeerAccess
func cuCtxEnablePeerAccess(other handle, flags uint32) code {
	return call("cuCtxEnablePeerAccess", fmt.Sprintf("flags=%d", flags), func() code {
		return with(other, func(d cuda.Device) code { return fails(invalidValue, lib.device.EnablePeer(d)) })
	})
}

//export cuMemGetInfo_v2
func cuMemGetInfo_v2(free, all *uint64) code {
	return call("cuMemGetInfo_v2", "", func() code {
		p := lib.device.Properties()
		*free, *all = uint64(p.Free), uint64(p.Memory)
		return success
	})
}

// --- memory ---

// An address is a device address.
type address uint64

//export cuMemAlloc_v2
func cuMemAlloc_v2(p *address, n uint64) code {
	return call("cuMemAlloc_v2", fmt.Sprint(n), func() code {
		at, err := lib.device.Alloc(int64(n))
		*p = address(at)
		return fails(outOfMemory, err)
	})
}

//export cuMemFree_v2
func cuMemFree_v2(p address) code {
	return call("cuMemFree_v2", "", func() code { return fails(invalidValue, lib.device.Free(cuda.Ptr(p))) })
}

//export cuMemHostAlloc
func cuMemHostAlloc(p **byte, n uint64, flags uint32) code {
	return call("cuMemHostAlloc", fmt.Sprintf("%d flags=%d", n, flags), func() code {
		b, err := lib.device.AllocHost(int(n))
		*p = unsafe.SliceData(b)
		return fails(outOfMemory, err)
	})
}

//export cuMemFreeHost
func cuMemFreeHost(p *byte) code {
	return call("cuMemFreeHost", "", func() code { return fails(invalidValue, lib.device.FreeHost(unsafe.Slice(p, 1))) })
}

// --- modules ---

// The supported options are the buffer for the error log and its size.
const (
	errorLog     = 5
	errorLogSize = 6
)

//export cuModuleLoadDataEx
func cuModuleLoadDataEx(m *handle, image *C.char, n uint32, options *int32, values *unsafe.Pointer) code {
	ptx := C.GoString(image)
	return call("cuModuleLoadDataEx", fmt.Sprint(len(ptx)), func() code {
		loaded, err := lib.device.Load([]byte(ptx))
		if err == nil {
			*m = give(loaded)
			return success
		}
		var log *byte
		var size int
		for i, option := range unsafe.Slice(options, n) {
			switch v := unsafe.Slice(values, n)[i]; option {
			case errorLog:
				log = (*byte)(v)
			case errorLogSize:
				size = int(uintptr(v))
			}
		}
		if log != nil && size > 0 {
			b := unsafe.Slice(log, size)
			b[copy(b[:size-1], "\n"+err.Error()+"\nmore\n")] = 0
		}
		return invalidPTX
	})
}

//export cuModuleUnload
func cuModuleUnload(m handle) code {
	return call("cuModuleUnload", fmt.Sprint(m), func() code { return end(m, cuda.Module.Unload) })
}

// A kernel is a function with the limit of its dynamic shared memory.
type kernel struct {
	cuda.Function
	module cuda.Module
}

//export cuModuleGetFunction
func cuModuleGetFunction(f *handle, m handle, name *C.char) code {
	return call("cuModuleGetFunction", fmt.Sprintf("%d %s", m, C.GoString(name)), func() code {
		return with(m, func(module cuda.Module) code {
			found, err := module.Function(C.GoString(name), 0)
			if err != nil {
				return fails(notFound, err)
			}
			*f = give(&kernel{found, module})
			return success
		})
	})
}

//export cuFuncSetAttribute
func cuFuncSetAttribute(f handle, attribute, value int32) code {
	return call("cuFuncSetAttribute", fmt.Sprintf("%d %d=%d", f, attribute, value), func() code {
		return with(f, func(k *kernel) code {
			more, err := k.module.Function(k.Name(), int(value))
			if err != nil {
				return fails(invalidValue, err)
			}
			k.Function = more
			return success
		})
	})
}

// --- streams ---

//export cuStreamCreate
func cuStreamCreate(stream *handle, flags uint32) code {
	return call("cuStreamCreate", fmt.Sprintf("flags=%d", flags), func() code {
		s, err := lib.device.NewStream()
		if err != nil {
			return fails(invalidValue, err)
		}
		*stream = give(s)
		return success
	})
}

//export cuStreamDestroy_v2
func cuStreamDestroy_v2(stream handle) code {
	return call("cuStreamDestroy_v2", fmt.Sprint(stream), func() code { return end(stream, cuda.Stream.Close) })
}

// Errors of kernels are reported when a stream is waited for, and are sticky.
//
//export cuStreamSynchronize
func cuStreamSynchronize(stream handle) code {
	return call("cuStreamSynchronize", fmt.Sprint(stream), func() code {
		return with(stream, func(s cuda.Stream) code {
			lib.trapped = fails(illegalAddress, s.Wait())
			return lib.trapped
		})
	})
}

// streamed executes an operation on a stream.
func streamed(name, args string, stream handle, do func(cuda.Stream) error) code {
	return call(name, fmt.Sprintf("%s stream=%d", args, stream), func() code {
		return with(stream, func(s cuda.Stream) code { return fails(invalidValue, do(s)) })
	})
}

//export cuMemcpyHtoDAsync_v2
func cuMemcpyHtoDAsync_v2(dst address, src *byte, n uint64, stream handle) code {
	return streamed("cuMemcpyHtoDAsync_v2", fmt.Sprint(n), stream, func(s cuda.Stream) error { return s.Upload(cuda.Ptr(dst), unsafe.Slice(src, n)) })
}

//export cuMemcpyDtoHAsync_v2
func cuMemcpyDtoHAsync_v2(dst *byte, src address, n uint64, stream handle) code {
	return streamed("cuMemcpyDtoHAsync_v2", fmt.Sprint(n), stream, func(s cuda.Stream) error { return s.Download(unsafe.Slice(dst, n), cuda.Ptr(src)) })
}

//export cuMemcpyAsync
func cuMemcpyAsync(dst, src address, n uint64, stream handle) code {
	return streamed("cuMemcpyAsync", fmt.Sprint(n), stream, func(s cuda.Stream) error { return s.Copy(cuda.Ptr(dst), cuda.Ptr(src), int64(n)) })
}

//export cuMemsetD8Async
func cuMemsetD8Async(dst address, value uint8, n uint64, stream handle) code {
	return streamed("cuMemsetD8Async", fmt.Sprintf("%d value=%d", n, value), stream, func(s cuda.Stream) error { return s.Fill(cuda.Ptr(dst), value, int64(n)) })
}

// The parameters of a launch are pairs of a tag and a value.
const (
	paramsEnd  = 0
	paramsAt   = 1
	paramsSize = 2
)

//export cuLaunchKernel
func cuLaunchKernel(f handle, gx, gy, gz, bx, by, bz, shared uint32, stream handle, params, extra *unsafe.Pointer) code {
	var at *byte
	size := 0
	for pairs := unsafe.Slice(extra, 5); len(pairs) > 1 && uintptr(pairs[0]) != paramsEnd; pairs = pairs[2:] {
		switch uintptr(pairs[0]) {
		case paramsAt:
			at = (*byte)(pairs[1])
		case paramsSize:
			size = int(*(*uint64)(pairs[1]))
		}
	}
	bytes := append([]byte(nil), unsafe.Slice(at, size)...)
	args := fmt.Sprintf("%d grid=%d,%d,%d block=%d,%d,%d shared=%d params=%s", f, gx, gy, gz, bx, by, bz, shared, hex.EncodeToString(bytes))
	return streamed("cuLaunchKernel", args, stream, func(s cuda.Stream) error {
		k, ok := object[*kernel](f)
		if !ok || params != nil {
			return fmt.Errorf("no kernel, or parameters one by one")
		}
		return s.Launch(cuda.Launch{
			Function: k.Function, Shared: int(shared), Params: bytes,
			Grid: cuda.Dim{X: int(gx), Y: int(gy), Z: int(gz)}, Block: cuda.Dim{X: int(bx), Y: int(by), Z: int(bz)},
		})
	})
}

// --- events ---

//export cuEventCreate
func cuEventCreate(event *handle, flags uint32) code {
	return call("cuEventCreate", fmt.Sprintf("flags=%d", flags), func() code {
		e, err := lib.device.NewEvent()
		if err != nil {
			return fails(invalidValue, err)
		}
		*event = give(e)
		return success
	})
}

//export cuEventDestroy_v2
func cuEventDestroy_v2(event handle) code {
	return call("cuEventDestroy_v2", fmt.Sprint(event), func() code { return end(event, cuda.Event.Close) })
}

//export cuEventRecord
func cuEventRecord(event, stream handle) code {
	return streamed("cuEventRecord", fmt.Sprint(event), stream, func(s cuda.Stream) error {
		e, _ := object[cuda.Event](event)
		return s.Record(e)
	})
}

//export cuStreamWaitEvent
func cuStreamWaitEvent(stream, event handle, flags uint32) code {
	return streamed("cuStreamWaitEvent", fmt.Sprintf("%d flags=%d", event, flags), stream, func(s cuda.Stream) error {
		e, _ := object[cuda.Event](event)
		return s.Await(e)
	})
}

//export cuEventElapsedTime
func cuEventElapsedTime(ms *float32, from, to handle) code {
	return call("cuEventElapsedTime", fmt.Sprintf("%d %d", from, to), func() code {
		return with(to, func(later cuda.Event) code {
			return with(from, func(earlier cuda.Event) code {
				t, err := later.Since(earlier)
				*ms = t
				return fails(invalidValue, err)
			})
		})
	})
}

// --- graphs; a captured graph needs no instantiation ---

//export cuStreamBeginCapture_v2
func cuStreamBeginCapture_v2(stream handle, mode int32) code {
	return streamed("cuStreamBeginCapture_v2", fmt.Sprintf("mode=%d", mode), stream, cuda.Stream.Capture)
}

//export cuStreamEndCapture
func cuStreamEndCapture(stream handle, graph *handle) code {
	return streamed("cuStreamEndCapture", "", stream, func(s cuda.Stream) error {
		g, err := s.EndCapture()
		if err == nil {
			*graph = give(g)
		}
		return err
	})
}

//export cuGraphInstantiateWithFlags
func cuGraphInstantiateWithFlags(replayed *handle, graph handle, flags uint64) code {
	return call("cuGraphInstantiateWithFlags", fmt.Sprintf("%d flags=%d", graph, flags), func() code {
		return with(graph, func(g cuda.Graph) code {
			*replayed = give(g)
			return success
		})
	})
}

//export cuGraphDestroy
func cuGraphDestroy(graph handle) code {
	return call("cuGraphDestroy", fmt.Sprint(graph), func() code { return end(graph, func(cuda.Graph) error { return nil }) })
}

//export cuGraphLaunch
func cuGraphLaunch(replayed, stream handle) code {
	return streamed("cuGraphLaunch", fmt.Sprint(replayed), stream, func(s cuda.Stream) error {
		g, _ := object[cuda.Graph](replayed)
		return s.Replay(g)
	})
}

//export cuGraphExecDestroy
func cuGraphExecDestroy(replayed handle) code {
	return call("cuGraphExecDestroy", fmt.Sprint(replayed), func() code { return end(replayed, cuda.Graph.Close) })
}
