// A double of cuBLASLt: the calls that products are made with, carried out plainly, with the checks that the library
// makes or leaves to the caller. What it is given and does not know ends the program.
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

void require(bool holds, const char *what) {
    if (!holds) {
        std::fprintf(stderr, "misuse of cuBLASLt: %s\n", what);
        std::abort();
    }
}

struct operation {
    cublasOperation_t a = CUBLAS_OP_N;
    cublasOperation_t b = CUBLAS_OP_N;
};

struct layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t leading;
    int32_t count = 1;
    int64_t stride = 0;
};

struct preference {
    uint64_t workspace_bytes = 0;
    uint32_t reduction_mask = 7;
    uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

template <class made>
cublasStatus_t make(void *place, made *object) {
    std::memcpy(place, &object, sizeof(object));
    return CUBLAS_STATUS_SUCCESS;
}

template <class value>
value read(const void *from, size_t size_bytes) {
    require(size_bytes == sizeof(value), "the size of an attribute");
    value v;
    std::memcpy(&v, from, sizeof(v));
    return v;
}

float load(const void *array, int64_t index, cudaDataType type) {
    return type == CUDA_R_32F ? static_cast<const float *>(array)[index]
                              : __bfloat162float(static_cast<const __nv_bfloat16 *>(array)[index]);
}

void store(void *array, int64_t index, cudaDataType type, float value) {
    if (type == CUDA_R_32F) {
        static_cast<float *>(array)[index] = value;
    } else {
        static_cast<__nv_bfloat16 *>(array)[index] = __float2bfloat16_rn(value);
    }
}

uint64_t value_bytes(cudaDataType type) {
    return type == CUDA_R_32F ? 4 : 2;
}

// What was asked for when the algorithm was found.
struct found_algorithm {
    uint32_t alignment[4];
};

void require_alignment(const void *data, const layout &l, uint32_t alignment) {
    const auto distances = static_cast<uint64_t>(l.leading | l.stride) * value_bytes(l.type);
    require((reinterpret_cast<uintptr_t>(data) | distances) % alignment == 0, "an array is aligned less than was said");
}

uint64_t op_rows(const layout &l, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? l.rows : l.columns;
}

uint64_t op_columns(const layout &l, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? l.columns : l.rows;
}

// op(matrix), one of them: column by column.
std::vector<float> values_of(const void *data, const layout &l, cublasOperation_t op, int64_t number) {
    const auto rows = static_cast<int64_t>(op_rows(l, op));
    const auto columns = static_cast<int64_t>(op_columns(l, op));
    std::vector<float> values;
    values.reserve(static_cast<size_t>(rows * columns));
    for (int64_t column = 0; column < columns; ++column) {
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t index = op == CUBLAS_OP_N ? row + column * l.leading : column + row * l.leading;
            values.push_back(load(data, number * l.stride + index, l.type));
        }
    }
    return values;
}

// column = left * right, left being column-major.
void multiply_column(const std::vector<float> &left, const float *right, size_t inner, std::vector<float> &column) {
    std::fill(column.begin(), column.end(), 0.0F);
    for (size_t i = 0; i < inner; ++i) {
        const float *const from = left.data() + i * column.size();
        for (size_t row = 0; row < column.size(); ++row) {
            column[row] += from[row] * right[i];
        }
    }
}

void require_sizes(const operation &o, const layout &a, const layout &b, const layout &c, const layout &d) {
    require(op_rows(a, o.a) == d.rows && op_columns(b, o.b) == d.columns && op_columns(a, o.a) == op_rows(b, o.b),
            "sizes do not fit each other");
    require(c.rows == d.rows && c.columns == d.columns && c.type == d.type, "C is not like D");
    for (const layout *l : {&a, &b, &c, &d}) {
        require(l->leading >= static_cast<int64_t>(l->rows), "a leading dimension is less than its rows");
        require(l->count == d.count, "batch counts differ");
    }
    require(a.type == CUDA_R_16BF && b.type == CUDA_R_16BF, "types");
}

}  // namespace

const char *cublasLtGetStatusName(cublasStatus_t /*status*/) {
    return "a status of the double";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    return make(handle, new int(0));
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete reinterpret_cast<int *>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType scale) {
    require(compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F, "compute type");
    return make(made, new operation());
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t of) {
    delete reinterpret_cast<operation *>(of);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t size_bytes) {
    auto &o = *reinterpret_cast<operation *>(of);
    const auto op = read<cublasOperation_t>(value, size_bytes);
    require(which == CUBLASLT_MATMUL_DESC_TRANSA || which == CUBLASLT_MATMUL_DESC_TRANSB, "attribute");
    (which == CUBLASLT_MATMUL_DESC_TRANSA ? o.a : o.b) = op;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
    return make(made, new layout{type, rows, columns, leading});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t of) {
    delete reinterpret_cast<layout *>(of);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t of, cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t size_bytes) {
    auto &l = *reinterpret_cast<layout *>(of);
    if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
        l.count = read<int32_t>(value, size_bytes);
    } else {
        require(which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, "attribute");
        l.stride = read<int64_t>(value, size_bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
    return make(made, new preference());
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t of) {
    delete reinterpret_cast<preference *>(of);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                                    size_t size_bytes) {
    auto &p = *reinterpret_cast<preference *>(of);
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        p.workspace_bytes = read<uint64_t>(value, size_bytes);
    } else if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
        p.reduction_mask = read<uint32_t>(value, size_bytes);
    } else {
        const int index = static_cast<int>(which) - static_cast<int>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
        require(index >= 0 && index < 4, "attribute");
        p.alignment[index] = read<uint32_t>(value, size_bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t what,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wanted, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int *count) {
    const auto &p = *reinterpret_cast<preference *>(wanted);
    require(most == 1 && p.workspace_bytes != 0, "results, workspace");
    require((p.reduction_mask & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) == 0,
            "a split sum's order or precision is left open");
    require_sizes(*reinterpret_cast<operation *>(what), *reinterpret_cast<layout *>(a), *reinterpret_cast<layout *>(b),
                  *reinterpret_cast<layout *>(c), *reinterpret_cast<layout *>(d));
    found_algorithm found{};
    std::memcpy(found.alignment, p.alignment, sizeof(found.alignment));
    std::memcpy(&results[0].algo, &found, sizeof(found));
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t what, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t /*stream*/) {
    const auto &o = *reinterpret_cast<operation *>(what);
    const auto &la = *reinterpret_cast<layout *>(a_layout);
    const auto &lb = *reinterpret_cast<layout *>(b_layout);
    const auto &lc = *reinterpret_cast<layout *>(c_layout);
    const auto &ld = *reinterpret_cast<layout *>(d_layout);
    require_sizes(o, la, lb, lc, ld);
    require(workspace != nullptr && workspace_bytes != 0, "no workspace");
    found_algorithm found{};
    std::memcpy(&found, algorithm, sizeof(found));
    require_alignment(a, la, found.alignment[0]);
    require_alignment(b, lb, found.alignment[1]);
    require_alignment(c, lc, found.alignment[2]);
    require_alignment(d, ld, found.alignment[3]);
    const float factor = *static_cast<const float *>(alpha);
    const float of_c = *static_cast<const float *>(beta);
    const size_t inner = op_columns(la, o.a);
    std::vector<float> sums(ld.rows);
    for (int64_t number = 0; number < ld.count; ++number) {
        const std::vector<float> left = values_of(a, la, o.a, number);
        const std::vector<float> right = values_of(b, lb, o.b, number);
        for (size_t column = 0; column < ld.columns; ++column) {
            multiply_column(left, right.data() + column * inner, inner, sums);
            for (size_t row = 0; row < ld.rows; ++row) {
                const int64_t index =
                    number * ld.stride + static_cast<int64_t>(row) + static_cast<int64_t>(column) * ld.leading;
                const float plus = of_c == 0 ? 0 : of_c * load(c, index, lc.type);
                store(d, index, ld.type, factor * sums[row] + plus);
            }
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}
