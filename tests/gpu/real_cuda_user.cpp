// cuda_user filled in with CUDA itself.
#include "real_cuda_user.hpp"

#include "gpu_kernels.hpp"

namespace ebb::test {

namespace {

// The runtime's C++ headers overload some names: the types of the table choose.
cuda_user make_table() {
    cuda_user user{};
    user.get_device = &cudaGetDevice;
    user.set_device = &cudaSetDevice;
    user.device_synchronize = &cudaDeviceSynchronize;
    user.get_last_error = &cudaGetLastError;
    user.peek_at_last_error = &cudaPeekAtLastError;

    user.mem_get_info = &cudaMemGetInfo;
    user.malloc = &cudaMalloc;
    user.free = &cudaFree;
    user.host_alloc = &cudaHostAlloc;
    user.free_host = &cudaFreeHost;
    user.memcpy = &cudaMemcpy;
    user.memcpy_async = &cudaMemcpyAsync;
    user.memset_async = &cudaMemsetAsync;

    user.stream_create_with_flags = &cudaStreamCreateWithFlags;
    user.stream_destroy = &cudaStreamDestroy;
    user.stream_query = &cudaStreamQuery;
    user.stream_synchronize = &cudaStreamSynchronize;
    user.stream_wait_event = &cudaStreamWaitEvent;
    user.event_create_with_flags = &cudaEventCreateWithFlags;
    user.event_destroy = &cudaEventDestroy;
    user.event_record = &cudaEventRecord;
    user.event_query = &cudaEventQuery;
    user.event_synchronize = &cudaEventSynchronize;

    user.stream_begin_capture = &cudaStreamBeginCapture;
    user.stream_end_capture = &cudaStreamEndCapture;
    user.stream_is_capturing = &cudaStreamIsCapturing;
    user.thread_exchange_stream_capture_mode = &cudaThreadExchangeStreamCaptureMode;
    user.graph_instantiate = [](cudaGraphExec_t *exec, cudaGraph_t graph) {
        return cudaGraphInstantiate(exec, graph, 0);
    };
    user.graph_launch = &cudaGraphLaunch;
    user.graph_exec_destroy = &cudaGraphExecDestroy;
    user.graph_destroy = &cudaGraphDestroy;

    user.launch_fill = &launch_fill;
    user.launch_add = &launch_add;
    user.launch_xor = &launch_xor;
    user.launch_compare = &launch_compare;
    user.launch_wait = &launch_wait;
    return user;
}

}  // namespace

const cuda_user &real_cuda_user() {
    static const cuda_user table = make_table();
    return table;
}

}  // namespace ebb::test
