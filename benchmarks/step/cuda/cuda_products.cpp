#include "cuda_products.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda_calls.hpp"

namespace step {
namespace {

// A description that cuBLASLt makes and destroys.
template <class description, cublasStatus_t (*destroy)(description)>
class owned {
public:
    owned() = default;
    ~owned() {
        if (made_ != nullptr) {
            destroy(made_);
        }
    }
    owned(const owned &) = delete;
    owned &operator=(const owned &) = delete;
    description *place() { return &made_; }
    [[nodiscard]] description get() const { return made_; }

private:
    description made_ = nullptr;
};

using operation = owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using layout = owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using preference = owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

int64_t bytes_of(bool is_float) {
    return is_float ? 4 : 2;
}

// The largest power of two, up to 256, that divides where a matrix begins, and its rows, and the next one.
int64_t alignment_of(const void *data, const matrix &m, bool is_float) {
    const auto distances = static_cast<uint64_t>((m.row_elements | m.stride) * bytes_of(is_float));
    const uint64_t bits = reinterpret_cast<uintptr_t>(data) | distances | 256U;
    return static_cast<int64_t>(bits & (~bits + 1));
}

cudaDataType type_of(bool is_float) {
    return is_float ? CUDA_R_32F : CUDA_R_16BF;
}

template <class attribute, class value>
void set(cublasLtMatmulDesc_t of, attribute which, const value &to) {
    check(cublasLtMatmulDescSetAttribute(of, which, &to, sizeof(to)), "cublasLtMatmulDescSetAttribute");
}

template <class attribute, class value>
void set(cublasLtMatmulPreference_t of, attribute which, const value &to) {
    check(cublasLtMatmulPreferenceSetAttribute(of, which, &to, sizeof(to)), "cublasLtMatmulPreferenceSetAttribute");
}

template <class attribute, class value>
void set(cublasLtMatrixLayout_t of, attribute which, const value &to) {
    check(cublasLtMatrixLayoutSetAttribute(of, which, &to, sizeof(to)), "cublasLtMatrixLayoutSetAttribute");
}

// cuBLASLt's matrices are column-major: a row-major one is there its transpose, of as many rows as a row has elements.
void describe(layout &made, bool is_float, int64_t rows, int64_t columns, const matrix &m, int64_t count) {
    const auto height = static_cast<uint64_t>(m.transposed ? rows : columns);
    const auto width = static_cast<uint64_t>(m.transposed ? columns : rows);
    check(cublasLtMatrixLayoutCreate(made.place(), type_of(is_float), height, width, m.row_elements),
          "cublasLtMatrixLayoutCreate");
    if (count > 1) {
        set(made.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
        set(made.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.stride);
    }
}

}  // namespace

// How a product of some sizes is carried out.
struct cuda_products::way {
    operation what;
    layout left, right, output;
    cublasLtMatmulAlgo_t algorithm{};
};

cuda_products::cuda_products(cudaStream_t stream, void *workspace, uint64_t workspace_bytes)
    : stream_(stream), workspace_(workspace), workspace_bytes_(workspace_bytes) {
    check(cublasLtCreate(&handle_), "cublasLtCreate");
}

cuda_products::~cuda_products() {
    ways_.clear();
    cublasLtDestroy(handle_);
}

cuda_products::key cuda_products::key_of(const matrix_product &p) {
    const void *const plus = p.plus == nullptr ? p.output.data : p.plus;
    return {p.rows,
            p.columns,
            p.inner,
            p.count,
            (p.left.transposed ? 1 : 0) + (p.right.transposed ? 2 : 0) + (p.float_output ? 4 : 0),
            p.left.row_elements,
            p.right.row_elements,
            p.output.row_elements,
            p.left.stride,
            p.right.stride,
            p.output.stride,
            p.plus == nullptr ? 0 : 1,
            alignment_of(p.left.data, p.left, false),
            alignment_of(p.right.data, p.right, false),
            alignment_of(plus, p.output, p.float_output),
            alignment_of(p.output.data, p.output, p.float_output)};
}

// output^T = right^T * left^T, which is what cuBLASLt sees: its first matrix is our right one.
void cuda_products::choose(const matrix_product &p, const key &k, way &w) {
    check(cublasLtMatmulDescCreate(w.what.place(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(w.what.get(), CUBLASLT_MATMUL_DESC_TRANSA, p.right.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(w.what.get(), CUBLASLT_MATMUL_DESC_TRANSB, p.left.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    describe(w.left, false, p.rows, p.inner, p.left, p.count);
    describe(w.right, false, p.inner, p.columns, p.right, p.count);
    describe(w.output, p.float_output, p.rows, p.columns, p.output, p.count);

    preference wanted;
    check(cublasLtMatmulPreferenceCreate(wanted.place()), "cublasLtMatmulPreferenceCreate");
    set(wanted.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes_);
    // Sums that are split are put together in a fixed order.
    set(wanted.get(), CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto aligned = [&](cublasLtMatmulPreferenceAttributes_t of, int64_t to) {
        set(wanted.get(), of, static_cast<uint32_t>(to));
    };
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, k[12]);
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, k[13]);
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, k[14]);
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, k[15]);

    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, w.what.get(), w.right.get(), w.left.get(), w.output.get(),
                                       w.output.get(), wanted.get(), 1, &found, &count);
    const std::string call =
        fmt::format("cublasLtMatmulAlgoGetHeuristic for {} x {} x {}, {} of them", p.rows, p.inner, p.columns, p.count);
    check(count == 0 && status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status, call.c_str());
    w.algorithm = found.algo;
}

cuda_products::way &cuda_products::way_of(const matrix_product &p) {
    const key k = key_of(p);
    const auto known = ways_.find(k);
    if (known != ways_.end()) {
        return *known->second;
    }
    auto made = std::make_unique<way>();
    choose(p, k, *made);
    return *ways_.emplace(k, std::move(made)).first->second;
}

void cuda_products::run(const matrix_product &p) {
    if (p.rows == 0 || p.columns == 0) {
        return;
    }
    const way &w = way_of(p);
    const float beta = p.plus == nullptr ? 0.0F : 1.0F;
    const void *const plus = p.plus == nullptr ? p.output.data : p.plus;
    check(cublasLtMatmul(handle_, w.what.get(), &p.factor, p.right.data, w.right.get(), p.left.data, w.left.get(),
                         &beta, plus, w.output.get(), const_cast<void *>(p.output.data), w.output.get(), &w.algorithm,
                         workspace_, workspace_bytes_, stream_),
          "cublasLtMatmul");
}

}  // namespace step
