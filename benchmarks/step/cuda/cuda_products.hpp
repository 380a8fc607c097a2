// Matrix products by cuBLASLt, of bf16 with float sums. How a product is carried out is chosen once for its sizes and
// the alignment of its arrays, so that the same product gives the same bits.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>

namespace step {

// A row-major matrix, or as many as the product's count, `stride` elements apart.
struct matrix {
    const void *data = nullptr;
    int64_t row_elements = 0;  // from one row to the next
    bool transposed = false;   // read so; it lies there the other way round
    int64_t stride = 0;
};

// output[rows, columns] = factor * left[rows, inner] * right[inner, columns] (+ plus).
struct matrix_product {
    int64_t rows = 0;
    int64_t columns = 0;
    int64_t inner = 0;
    matrix left;
    matrix right;
    const void *plus = nullptr;  // laid out as the output; may be it
    matrix output;
    bool float_output = false;  // else bf16
    float factor = 1;
    int64_t count = 1;
};

class cuda_products {
public:
    // The workspace must be there as long.
    cuda_products(cudaStream_t stream, void *workspace, uint64_t workspace_bytes);
    ~cuda_products();
    cuda_products(const cuda_products &) = delete;
    cuda_products &operator=(const cuda_products &) = delete;

    void run(const matrix_product &p);

    // What products of large matrices want on today's GPUs.
    static constexpr uint64_t k_workspace_bytes = 64ULL << 20U;

private:
    using key = std::array<int64_t, 16>;
    struct way;

    [[nodiscard]] static key key_of(const matrix_product &p);
    way &way_of(const matrix_product &p);
    void choose(const matrix_product &p, const key &k, way &w);

    cudaStream_t stream_;
    void *workspace_;
    uint64_t workspace_bytes_;
    cublasLtHandle_t handle_ = nullptr;
    std::map<key, std::unique_ptr<way>> ways_;
};

}  // namespace step
