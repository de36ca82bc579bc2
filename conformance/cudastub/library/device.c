// One device that has memory and streams but runs no kernel: what it is told, it notes. The driver of
// package exec/cuda/driver is tested against that.
//
//   CUDASTUB       not empty: there is this device; else every call fails with CUDA_ERROR_NO_DEVICE
//   CUDASTUB_LOG   a file that each call adds a line to, its name and then what matters of its arguments
//   CUDASTUB_FAIL  NAME=CODE: the call of that name fails so, from 700 on all later ones too, as after
//                  a kernel that trapped
//
// Addresses of the device are addresses of the host, so that a copy is one. Streams do at once what
// they are given, but while capturing, when they note how many things a graph has. A handle points to
// one of the objects below; one that was destroyed is an error, as is one of another kind.

#include <cuda.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CUresult trapped;

static int on(void) {
	const char *s = getenv("CUDASTUB");
	return s != NULL && *s != 0;
}

// note adds a line to the log, and returns what the call is to return.
static CUresult note(const char *name, const char *format, ...) {
	if (!on()) {
		return CUDA_ERROR_NO_DEVICE;
	}
	const char *path = getenv("CUDASTUB_LOG");
	FILE *log = path != NULL && *path != 0 ? fopen(path, "a") : NULL;
	if (log != NULL) {
		va_list args;
		va_start(args, format);
		fputs(name, log);
		vfprintf(log, format, args);
		fputc('\n', log);
		va_end(args);
		fclose(log);
	}
	const char *fail = getenv("CUDASTUB_FAIL");
	size_t n = strlen(name);
	if (fail != NULL && strncmp(fail, name, n) == 0 && fail[n] == '=') {
		CUresult code = (CUresult)atoi(fail + n + 1);
		if (code >= 700) {
			trapped = code;
		}
		return code;
	}
	return trapped;
}

int cudastub_missing(const char *name) {
	CUresult r = note(name, "");
	return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r;
}

#define NOTE(...)                                  \
	do {                                           \
		CUresult result = note(__func__, __VA_ARGS__); \
		if (result != CUDA_SUCCESS) {              \
			return result;                         \
		}                                          \
	} while (0)

// --- objects ---

typedef enum { CONTEXT, MODULE, FUNCTION, STREAM, EVENT, GRAPH, EXEC, MEMORY, HOST } kind;

typedef struct {
	kind kind;
	int live;
	int number;    // from 1, of all objects: what the log names it by
	void *bytes;   // of memory
	size_t size;
	int things;    // in a graph, or noted by a stream that captures
	int capturing; // a stream
	int shared;    // that a function may have
	char name[64]; // of a function
} object;

enum { MOST = 4096 };
static object objects[MOST];
static int made;
static object *current;

static object *make(kind k) {
	if (made == MOST) {
		abort();
	}
	objects[made] = (object){.kind = k, .live = 1, .number = made + 1};
	return &objects[made++];
}

// is tells whether a handle is of a live object of a kind.
static int is(const void *handle, kind k) {
	for (int i = 0; i < made; i++) {
		if (handle == &objects[i]) {
			return objects[i].kind == k && objects[i].live;
		}
	}
	return 0;
}

static int number(const void *handle) {
	for (int i = 0; i < made; i++) {
		if (handle == &objects[i]) {
			return i + 1;
		}
	}
	return 0;
}

// inside tells whether a range lies in memory of a kind.
static int inside(const void *p, size_t size, kind k) {
	for (int i = 0; i < made; i++) {
		const object *o = &objects[i];
		const char *begin = o->bytes;
		if (o->kind == k && o->live && (const char *)p >= begin && (const char *)p + size <= begin + o->size) {
			return 1;
		}
	}
	return 0;
}

static CUresult end(void *handle, kind k) {
	if (!is(handle, k)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	object *o = handle;
	o->live = 0;
	free(o->bytes);
	o->bytes = NULL;
	return CUDA_SUCCESS;
}

static CUresult memory(kind k, size_t size, void **p) {
	size_t all = (size + 255) / 256 * 256;
	if (size == 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (all > (size_t)1 << 30) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	object *o = make(k);
	o->bytes = aligned_alloc(256, all);
	o->size = size;
	*p = o->bytes;
	return CUDA_SUCCESS;
}

static CUresult release(void *p, kind k) {
	for (int i = 0; i < made; i++) {
		if (objects[i].kind == k && objects[i].live && objects[i].bytes == p) {
			return end(&objects[i], k);
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}

// --- the process ---

CUresult cuInit(unsigned int flags) {
	NOTE(" flags=%u", flags);
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
	NOTE("");
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
	static const struct {
		CUresult code;
		const char *text;
	} texts[] = {
		{CUDA_ERROR_INVALID_VALUE, "invalid argument"},
		{CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
		{CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
		{CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"},
		{CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
		{CUDA_ERROR_NOT_FOUND, "named symbol not found"},
		{CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		if (texts[i].code == code) {
			*text = texts[i].text;
			return CUDA_SUCCESS;
		}
	}
	*text = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

// --- the device and its context ---

CUresult cuDeviceGetCount(int *count) {
	NOTE("");
	*count = 1;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int n) {
	NOTE(" %d", n);
	*device = n;
	return n == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
	NOTE(" %d", device);
	snprintf(name, size, "stub");
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute a, CUdevice device) {
	NOTE(" %d", a);
	static const struct {
		CUdevice_attribute attribute;
		int value;
	} values[] = {
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 9},
		{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 128},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 101376},
		{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 75497472},
		{CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 10501000},
		{CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 384},
	};
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		if (values[i].attribute == a) {
			*value = values[i].value;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
	NOTE(" flags=%u device=%d", flags, device);
	current = make(CONTEXT);
	*context = (CUcontext)current;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
	if (!on()) {
		return CUDA_ERROR_NO_DEVICE;
	}
	if (!is(context, CONTEXT)) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	current = (object *)context;
	return CUDA_SUCCESS;
}

// A context ends after a trap too, and with it all but host memory and graphs, which are noted where
// any are left.
CUresult cuCtxDestroy(CUcontext context) {
	CUresult r = note(__func__, "");
	if (end(context, CONTEXT) != CUDA_SUCCESS) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	int left = 0;
	for (int i = 0; i < made; i++) {
		object *o = &objects[i];
		if (o->live && (o->kind == HOST || o->kind == EXEC || o->kind == GRAPH)) {
			left++;
		} else if (o->live && o->kind != CONTEXT) {
			end(o, o->kind);
		}
	}
	if (left > 0) {
		note("left", " %d", left);
	}
	return r;
}

CUresult cuMemGetInfo(size_t *available, size_t *all) {
	NOTE("");
	*available = (size_t)1 << 30;
	*all = (size_t)2 << 30;
	return CUDA_SUCCESS;
}

// --- memory ---

CUresult cuMemAlloc(CUdeviceptr *p, size_t size) {
	NOTE(" %zu", size);
	return memory(MEMORY, size, (void **)p);
}

CUresult cuMemFree(CUdeviceptr p) {
	NOTE("");
	return release((void *)p, MEMORY);
}

CUresult cuMemHostAlloc(void **p, size_t size, unsigned int flags) {
	NOTE(" %zu flags=%u", size, flags);
	return memory(HOST, size, p);
}

// What does not end with a context can be freed after a trap too.
CUresult cuMemFreeHost(void *p) {
	CUresult r = note(__func__, ""), freed = release(p, HOST);
	return r != CUDA_SUCCESS ? r : freed;
}

// --- modules ---

// What begins as PTX does is a module, and each entry in it a kernel.
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n, CUjit_option *options, void **values) {
	NOTE(" %zu", strlen(image));
	if (strstr(image, ".version") == NULL) {
		for (unsigned int i = 0; i < n; i++) {
			if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
				strcpy(values[i], "\nptxas fatal   : Missing .version directive at start of file\nmore\n");
			}
		}
		return CUDA_ERROR_INVALID_PTX;
	}
	object *o = make(MODULE);
	o->bytes = strdup(image);
	*module = (CUmodule)o;
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
	NOTE(" %d", number(module));
	return end(module, MODULE);
}

CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name) {
	NOTE(" %d %s", number(module), name);
	char entry[128];
	snprintf(entry, sizeof entry, ".entry %.64s(", name);
	if (!is(module, MODULE)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (strstr(((object *)module)->bytes, entry) == NULL) {
		return CUDA_ERROR_NOT_FOUND;
	}
	object *o = make(FUNCTION);
	snprintf(o->name, sizeof o->name, "%.60s", name);
	*f = (CUfunction)o;
	return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int value) {
	NOTE(" %s %d=%d", is(f, FUNCTION) ? ((object *)f)->name : "?", a, value);
	if (!is(f, FUNCTION)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	((object *)f)->shared = value;
	return value <= 101376 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// --- streams ---

// does tells whether a stream does a thing at once; while it captures, it notes it.
static int does(CUstream stream) {
	object *s = (object *)stream;
	s->things += s->capturing;
	return !s->capturing;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
	NOTE(" flags=%u", flags);
	*stream = (CUstream)make(STREAM);
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
	NOTE(" %d", number(stream));
	return end(stream, STREAM);
}

CUresult cuStreamSynchronize(CUstream stream) {
	NOTE(" %d", number(stream));
	return is(stream, STREAM) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult copy(CUstream stream, void *dst, const void *src, size_t size, int device) {
	if (!is(stream, STREAM)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (!device) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (does(stream)) {
		memmove(dst, src, size);
	}
	return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t size, CUstream stream) {
	NOTE(" %zu stream=%d", size, number(stream));
	return copy(stream, (void *)dst, src, size, inside((void *)dst, size, MEMORY));
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t size, CUstream stream) {
	NOTE(" %zu stream=%d", size, number(stream));
	return copy(stream, dst, (void *)src, size, inside((void *)src, size, MEMORY));
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream) {
	NOTE(" %zu stream=%d", size, number(stream));
	return copy(stream, (void *)dst, (void *)src, size, inside((void *)dst, size, MEMORY) && inside((void *)src, size, MEMORY));
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t size, CUstream stream) {
	NOTE(" %zu value=%d stream=%d", size, value, number(stream));
	if (!is(stream, STREAM) || !inside((void *)dst, size, MEMORY)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (does(stream)) {
		memset((void *)dst, value, size);
	}
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
		unsigned int shared, CUstream stream, void **params, void **extra) {
	const unsigned char *bytes = NULL;
	size_t size = 0;
	for (int i = 0; extra != NULL && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
			bytes = extra[i + 1];
		} else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
			size = *(size_t *)extra[i + 1];
		}
	}
	char hex[65] = "";
	for (size_t i = 0; i < size && i < 32; i++) {
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	}
	NOTE(" %s grid=%u,%u,%u block=%u,%u,%u shared=%u stream=%d params=%zu:%s", is(f, FUNCTION) ? ((object *)f)->name : "?", gx, gy, gz, bx, by, bz,
		shared, number(stream), size, hex);
	if (!is(f, FUNCTION) || !is(stream, STREAM)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (params != NULL || gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0 || (shared > 48 << 10 && (int)shared > ((object *)f)->shared)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	does(stream);
	return CUDA_SUCCESS;
}

// --- events ---

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
	NOTE(" flags=%u", flags);
	*event = (CUevent)make(EVENT);
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
	NOTE(" %d", number(event));
	return end(event, EVENT);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
	NOTE(" %d stream=%d", number(event), number(stream));
	if (!is(event, EVENT) || !is(stream, STREAM)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	static int ticks;
	((object *)event)->things = ++ticks;
	return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
	NOTE(" %d event=%d flags=%u", number(stream), number(event), flags);
	return is(event, EVENT) && is(stream, STREAM) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// A tick of a record is a millisecond.
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
	NOTE(" %d %d", number(from), number(to));
	if (!is(from, EVENT) || !is(to, EVENT)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	*ms = ((object *)to)->things - ((object *)from)->things;
	return CUDA_SUCCESS;
}

// --- graphs ---

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
	NOTE(" %d mode=%d", number(stream), mode);
	if (!is(stream, STREAM)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	object *s = (object *)stream;
	if (s->capturing) {
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	s->capturing = 1;
	s->things = 0;
	return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
	NOTE(" %d", number(stream));
	if (!is(stream, STREAM) || !((object *)stream)->capturing) {
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	object *o = make(GRAPH);
	o->things = ((object *)stream)->things;
	((object *)stream)->capturing = 0;
	*graph = (CUgraph)o;
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
	NOTE(" %d flags=%llu", number(graph), flags);
	if (!is(graph, GRAPH)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	object *o = make(EXEC);
	o->things = ((object *)graph)->things;
	*exec = (CUgraphExec)o;
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
	NOTE(" %d", number(graph));
	return end(graph, GRAPH);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
	NOTE(" %d of %d stream=%d", number(exec), is(exec, EXEC) ? ((object *)exec)->things : -1, number(stream));
	return is(exec, EXEC) && is(stream, STREAM) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
	CUresult r = note(__func__, " %d", number(exec)), freed = end(exec, EXEC);
	return r != CUDA_SUCCESS ? r : freed;
}
