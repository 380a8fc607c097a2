// Collectives and offload share the links: ebb_collective_begin and _end keep copies away while a collective runs.
//
// One process drives all GPUs that are there, one or more, each with a runtime of its own. Beside the work of each
// layer, forward and backward, an all-reduce runs on a stream of its own. The work is a kernel that fills the layer's
// activation; in the backward pass another looks at every number that came back.
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ebb/ebb.hpp"

namespace {

constexpr int k_layers = 16, k_steps = 4;
constexpr size_t k_floats = size_t{16} << 20;  // of an activation, and of what is reduced
constexpr size_t k_bytes = k_floats * sizeof(float);

void check(cudaError_t error, const char *call) {
    if (error != cudaSuccess) {
        throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
    }
}
void check(ncclResult_t result, const char *call) {
    if (result != ncclSuccess) {
        throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(result));
    }
}
#define CHECK(call) check((call), #call)

__global__ void fill(float *data, float value) {
    data[blockIdx.x * size_t{blockDim.x} + threadIdx.x] = value;
}
__global__ void compare(const float *data, float value, unsigned long long *wrong) {
    if (data[blockIdx.x * size_t{blockDim.x} + threadIdx.x] != value) {
        atomicAdd(wrong, 1ULL);
    }
}
constexpr unsigned k_threads = 256, k_blocks = k_floats / k_threads;

// A GPU. Its activations are memory of the device's own pool, in the order of the compute stream.
struct rank {
    int ordinal;
    cudaStream_t compute = nullptr, links = nullptr;
    ncclComm_t comm = nullptr;
    float *reduced = nullptr;
    unsigned long long *wrong = nullptr;
    ebb::cpp::runtime ebb;
    std::vector<ebb::cpp::activation> saved;  // declared last: they end before the runtime does

    rank(int device, const ebb_runtime_options &options) : ordinal(device), ebb(options) {
        CHECK(cudaSetDevice(ordinal));
        CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&links, cudaStreamNonBlocking));
        CHECK(cudaMalloc(&reduced, k_bytes));
        CHECK(cudaMalloc(&wrong, sizeof(*wrong)));
        CHECK(cudaMemset(wrong, 0, sizeof(*wrong)));
    }
};

ebb_stream number_of(cudaStream_t stream) {
    return reinterpret_cast<ebb_stream>(stream);
}

struct lent_memory {  // an activation's, while it is Ebb's
    void *data = nullptr;
    cudaStream_t stream;
    static void give_back(void *context) {  // the deleter: may be reused behind the stream
        const std::unique_ptr<lent_memory> lent(static_cast<lent_memory *>(context));
        static_cast<void>(cudaFreeAsync(lent->data, lent->stream));
    }
};

void forward(rank &r, int layer) {
    const ebb::cpp::scope scope(r.ebb, ("layer." + std::to_string(layer)).c_str());
    std::unique_ptr<lent_memory> lent(new lent_memory{nullptr, r.compute});
    CHECK(cudaMallocAsync(&lent->data, k_bytes, r.compute));
    fill<<<k_blocks, k_threads, 0, r.compute>>>(static_cast<float *>(lent->data), static_cast<float>(layer));
    const ebb_stream producer = number_of(r.compute);
    ebb_offload_args args{};
    args.name = "activation";
    args.data = lent->data;
    args.size_bytes = k_bytes;
    args.producers = &producer;
    args.producer_count = 1;
    args.deleter = lent_memory::give_back;
    args.deleter_context = lent.get();
    r.saved.push_back(r.ebb.offload(args));
    static_cast<void>(lent.release());  // Ebb's now
}

void backward(rank &r, int layer) {
    ebb::cpp::claim bytes = r.saved.back().reload(number_of(r.compute));
    compare<<<k_blocks, k_threads, 0, r.compute>>>(static_cast<float *>(bytes.data()), static_cast<float>(layer),
                                                   r.wrong);
    bytes.return_on(number_of(r.compute));
    r.saved.back().release();
    r.saved.pop_back();
}

// Runs a layer's work while an all-reduce runs. What is offloaded or prefetched in between is copied behind the
// all-reduce; only what somebody waits for is copied at once.
void beside_all_reduce(std::vector<rank> &ranks, void (*work)(rank &, int), int layer) {
    for (rank &r : ranks) {
        CHECK(cudaSetDevice(r.ordinal));
        fill<<<k_blocks, k_threads, 0, r.links>>>(r.reduced, 1.0F);
        ebb::cpp::check(ebb_collective_begin(r.ebb.get(), number_of(r.links), k_bytes));
    }
    CHECK(ncclGroupStart());
    for (rank &r : ranks) {
        CHECK(ncclAllReduce(r.reduced, r.reduced, k_floats, ncclFloat, ncclSum, r.comm, r.links));
    }
    CHECK(ncclGroupEnd());
    for (rank &r : ranks) {
        CHECK(cudaSetDevice(r.ordinal));
        work(r, layer);
        ebb::cpp::check(ebb_collective_end(r.ebb.get(), number_of(r.links)));
        compare<<<k_blocks, k_threads, 0, r.links>>>(r.reduced, static_cast<float>(ranks.size()), r.wrong);
        CHECK(cudaGetLastError());  // of the launches
    }
}

unsigned long long finish(rank &r) {
    unsigned long long wrong = 0;
    CHECK(cudaSetDevice(r.ordinal));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&wrong, r.wrong, sizeof(wrong), cudaMemcpyDeviceToHost));
    const ebb_statistics s = r.ebb.stats();
    std::printf("GPU %d: %.2f GB to the host, %.2f GB back, %llu numbers wrong\n", r.ordinal,
                static_cast<double>(s.d2h_bytes) / 1e9, static_cast<double>(s.h2d_bytes) / 1e9, wrong);
    CHECK(ncclCommDestroy(r.comm));
    ebb::cpp::check(r.ebb.close());
    return wrong;
}

int run() {
    int count = 0;
    int driver = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
        static_cast<void>(cudaDriverGetVersion(&driver));
        throw std::runtime_error("no NVIDIA GPU can be used: " +
                                 std::string(driver == 0 ? "there is no driver" : cudaGetErrorString(error)) +
                                 "; run it where nvidia-smi lists one");
    }
    ebb_runtime_options options{};
    options.device = "cuda";
    options.policy = "offload";
    options.device_budget_bytes = 4 * k_bytes;
    std::vector<rank> ranks;
    for (options.device_ordinal = 0; options.device_ordinal < count; ++options.device_ordinal) {
        ranks.emplace_back(options.device_ordinal, options);
    }
    std::vector<ncclComm_t> comms(ranks.size());
    CHECK(ncclCommInitAll(comms.data(), count, nullptr));
    for (rank &r : ranks) {
        r.comm = comms[static_cast<size_t>(r.ordinal)];
    }
    for (int step = 0; step < k_steps; ++step) {
        for (rank &r : ranks) {
            r.ebb.step(EBB_PHASE_TRAIN);
        }
        for (int layer = 0; layer < k_layers; ++layer) {
            beside_all_reduce(ranks, forward, layer);
        }
        for (int layer = k_layers; layer-- > 0;) {
            beside_all_reduce(ranks, backward, layer);
        }
    }
    unsigned long long wrong = 0;
    for (rank &r : ranks) {
        wrong += finish(r);
    }
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "nccl_overlap: %s\n", failure.what());
        return 1;
    }
}
