/* The loop on an NVIDIA GPU: a stream of its own, and one pool of device memory that the loop's arrays and Ebb's
 * staging both come from. Nothing in it is Ebb's but the shape of ebb_allocator.
 */
#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>

#include "loop_device.h"

struct loop_device {
    cudaStream_t stream;
    cudaMemPool_t pool;
    ebb_allocator lent;
};

/* ---- memory: stream-ordered, so what is freed serves the next allocation at once ---- */

static cudaStream_t stream_of(ebb_stream number) {
    return (cudaStream_t)(uintptr_t)number; /* 0, 1 and 2 have CUDA's meaning too */
}

/* The memory may be used behind `home` as it is now: what cudaMallocFromPoolAsync promises. CUDA promises an alignment
 * of 256; what is aligned to less than Ebb wants is refused, and the loop then reloads into memory of its own. */
static void *lend(void *memory, uint64_t size_bytes, uint64_t alignment, ebb_stream home) {
    loop_device *const device = (loop_device *)memory;
    void *data = nullptr;
    if (cudaMallocFromPoolAsync(&data, size_bytes, device->pool, stream_of(home)) != cudaSuccess) {
        (void)cudaGetLastError(); /* said by the null; the next call need not report it */
        return nullptr;
    }
    if ((uintptr_t)data % alignment != 0) {
        (void)cudaFreeAsync(data, stream_of(home));
        return nullptr;
    }
    return data;
}

static void take_back(void *memory, void *data, uint64_t size_bytes, ebb_stream home) {
    (void)memory;
    (void)size_bytes;
    (void)cudaFreeAsync(data, stream_of(home));
}

/* What the device has free, and what the pool holds and nobody uses. */
static uint64_t available_bytes(void *memory) {
    loop_device *const device = (loop_device *)memory;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    uint64_t reserved_bytes = 0;
    uint64_t used_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess ||
        cudaMemPoolGetAttribute(device->pool, cudaMemPoolAttrReservedMemCurrent, &reserved_bytes) != cudaSuccess ||
        cudaMemPoolGetAttribute(device->pool, cudaMemPoolAttrUsedMemCurrent, &used_bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return free_bytes + reserved_bytes - used_bytes;
}

/* ---- the functions of the loop ---- */

static ebb_status cuda_status(cudaError_t error, const char *call) {
    if (error == cudaSuccess) {
        return EBB_OK;
    }
    char reason[256];
    snprintf(reason, sizeof(reason), "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    (void)cudaGetLastError();
    return loop_failed(error == cudaErrorMemoryAllocation ? EBB_OUT_OF_DEVICE_MEMORY : EBB_DEVICE_ERROR, call, reason);
}
#define CUDA_CHECK(call) TRY(cuda_status((call), #call))

static bool find_gpu() {
    int count = 0;
    int driver = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) {
        return true;
    }
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0) {
        fprintf(stderr,
                "custom_loop: --device cuda: there is no NVIDIA driver here; run it on a machine with an NVIDIA "
                "GPU, or use --device host\n");
    } else if (error == cudaErrorInsufficientDriver) {
        fprintf(
            stderr,
            "custom_loop: --device cuda: the NVIDIA driver is for CUDA %d.%d, and this program for %d.%d; update the "
            "driver, or use --device host\n",
            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    } else {
        fprintf(stderr,
                "custom_loop: --device cuda: no usable NVIDIA GPU: %s (%s); look at nvidia-smi and "
                "CUDA_VISIBLE_DEVICES, or use --device host\n",
                cudaGetErrorString(error), cudaGetErrorName(error));
    }
    return false;
}

static ebb_status make_stream_and_pool(loop_device *device) {
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned; /* memory that stays where it is: on the device */
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 0;
    uint64_t keep_all = UINT64_MAX; /* hand nothing back to the driver at each synchronisation */
    CUDA_CHECK(cudaSetDevice(0));
    CUDA_CHECK(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaMemPoolCreate(&device->pool, &props));
    CUDA_CHECK(cudaMemPoolSetAttribute(device->pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
    return EBB_OK;
}

static void cuda_close(loop_device *device) {
    if (device->pool != nullptr) {
        (void)cudaMemPoolDestroy(device->pool);
    }
    if (device->stream != nullptr) {
        (void)cudaStreamDestroy(device->stream);
    }
    free(device);
}

static ebb_status cuda_open(ebb_runtime_options *options, loop_device **out) {
    if (!find_gpu()) {
        return EBB_UNSUPPORTED;
    }
    loop_device *const device = (loop_device *)calloc(1, sizeof(loop_device));
    if (device == nullptr) {
        return loop_failed(EBB_OUT_OF_HOST_MEMORY, "opening the device", "calloc gave nothing");
    }
    const ebb_status status = make_stream_and_pool(device);
    if (status != EBB_OK) {
        cuda_close(device);
        return status;
    }
    device->lent.alloc = lend;
    device->lent.free = take_back;
    device->lent.available_bytes = available_bytes;
    device->lent.context = device;
    options->allocator = &device->lent;
    *out = device;
    return EBB_OK;
}

static ebb_status cuda_start(loop_device *device, ebb_runtime *ebb, ebb_stream *stream) {
    (void)ebb;
    *stream = (ebb_stream)(uintptr_t)device->stream;
    return EBB_OK;
}

static ebb_status cuda_alloc(loop_device *device, size_t size_bytes, void **data) {
    CUDA_CHECK(cudaMallocFromPoolAsync(data, size_bytes, device->pool, device->stream));
    return EBB_OK;
}

static void cuda_free(loop_device *device, void *data) {
    if (data != nullptr) {
        (void)cudaFreeAsync(data, device->stream); /* what broke the stream is said by the next launch or read */
    }
}

/* One thread per element. */
__global__ void run_kernel(kernel which, kernel_args args) {
    const size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < elements_of(which)) {
        run_element(which, &args, at);
    }
}

static ebb_status cuda_launch(loop_device *device, kernel which, const kernel_args *args) {
    const unsigned threads = 128;
    const unsigned blocks = (unsigned)((elements_of(which) + threads - 1) / threads);
    run_kernel<<<blocks, threads, 0, device->stream>>>(which, *args);
    return cuda_status(cudaGetLastError(), "a kernel's launch");
}

static ebb_status cuda_read(loop_device *device, const void *data, size_t size_bytes, void *to) {
    CUDA_CHECK(cudaMemcpyAsync(to, data, size_bytes, cudaMemcpyDeviceToHost, device->stream));
    CUDA_CHECK(cudaStreamSynchronize(device->stream));
    return EBB_OK;
}

static ebb_status cuda_peak_bytes(loop_device *device, uint64_t *bytes) {
    CUDA_CHECK(cudaMemPoolGetAttribute(device->pool, cudaMemPoolAttrUsedMemHigh, bytes));
    return EBB_OK;
}

static void cuda_stop(loop_device *device) {
    (void)cuda_status(cudaStreamSynchronize(device->stream), "cudaStreamSynchronize");
}

const loop_device_functions cuda_loop_device = {"cuda",      cuda_open, cuda_start,      cuda_alloc, cuda_free,
                                                cuda_launch, cuda_read, cuda_peak_bytes, cuda_stop,  cuda_close};
