#include "cuda/gemm/blas.h"

#include "cuda/common/cuda_must.h"

namespace quire::cuda {

namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // what cuBLAS advises for Hopper
constexpr size_t kPlansMax = 4096;                      // shapes kept; a server sees a few hundred

// The largest power of two, up to 256, that divides an address.
uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what, T value) {
  CUDA_MUST(cublasLtMatrixLayoutSetAttribute(layout, what, &value, sizeof(value)));
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
         T value) {
  CUDA_MUST(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)));
}

// cuBLAS counts columns first: a row-major [rows, columns] is its [columns, rows].
struct Shape {
  int64_t rows, columns, stride, batch;
};

cublasLtMatrixLayout_t make_layout(cudaDataType_t type, const Shape& shape, int64_t n_batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  CUDA_MUST(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(shape.columns),
                                       static_cast<uint64_t>(shape.rows), shape.stride));
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(n_batch));
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, shape.batch);
  return layout;
}

}  // namespace

Blas::Blas(DeviceMemory* memory, cudaStream_t stream) : memory_(memory), stream_(stream) {
  std::byte* data = memory_->allocate(kWorkspaceBytes);
  CUDA_MUST(data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
  workspace_ = Buffer(memory_, data, kWorkspaceBytes);
  CUDA_MUST(cublasLtCreate(&handle_));
}

Blas::~Blas() {
  forget_plans();
  CUDA_MUST(cublasLtDestroy(handle_));
}

void Blas::forget_plans() {
  for (auto& [key, plan] : plans_) {
    CUDA_MUST(cublasLtMatmulDescDestroy(plan.product));
    CUDA_MUST(cublasLtMatrixLayoutDestroy(plan.weight));
    CUDA_MUST(cublasLtMatrixLayoutDestroy(plan.x));
    CUDA_MUST(cublasLtMatrixLayoutDestroy(plan.out));
  }
  plans_.clear();
}

Blas::Key Blas::key_of(const BlasProduct& p) {
  return {p.n_tokens,
          p.n_out,
          p.n_in,
          p.n_batch,
          static_cast<int64_t>(p.order),
          static_cast<int64_t>(p.out_dtype),
          p.weight_stride,
          p.weight_batch,
          p.x_stride,
          p.x_batch,
          p.out_stride,
          p.out_batch,
          alignment_of(p.weight),
          alignment_of(p.x),
          alignment_of(p.out)};
}

void Blas::choose_algorithm(const BlasProduct& p, Plan* plan) const {
  cublasLtMatmulPreference_t preference = nullptr;
  CUDA_MUST(cublasLtMatmulPreferenceCreate(&preference));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  // Partial sums stay in float32: the result is rounded once.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.weight));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.x));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.out));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.out));
  cublasLtMatmulHeuristicResult_t found{};
  int n_found = 0;
  const cublasStatus_t code =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan->product, plan->weight, plan->x, plan->out,
                                     plan->out, preference, 1, &found, &n_found);
  if (code != CUBLAS_STATUS_NOT_SUPPORTED) CUDA_MUST(code);
  CUDA_MUST(cublasLtMatmulPreferenceDestroy(preference));
  plan->is_supported = code == CUBLAS_STATUS_SUCCESS && n_found > 0;
  plan->algorithm = found.algo;
}

Blas::Plan Blas::make_plan(const BlasProduct& p) const {
  Plan plan;
  CUDA_MUST(cublasLtMatmulDescCreate(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const bool is_transposed = p.order == WeightOrder::out_in;
  const cublasOperation_t operation = is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  CUDA_MUST(cublasLtMatmulDescSetAttribute(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &operation,
                                           sizeof(operation)));
  const Shape weight{.rows = is_transposed ? p.n_out : p.n_in,
                     .columns = is_transposed ? p.n_in : p.n_out,
                     .stride = p.weight_stride,
                     .batch = p.weight_batch};
  plan.weight = make_layout(CUDA_R_16BF, weight, p.n_batch);
  plan.x = make_layout(CUDA_R_16BF, {p.n_tokens, p.n_in, p.x_stride, p.x_batch}, p.n_batch);
  plan.out = make_layout(p.out_dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_32F,
                         {p.n_tokens, p.n_out, p.out_stride, p.out_batch}, p.n_batch);
  choose_algorithm(p, &plan);
  return plan;
}

BlasAnswer Blas::multiply(const BlasProduct& p) {
  CHECK(p.out_dtype == Dtype::bf16 || p.out_dtype == Dtype::f32);
  if (plans_.size() >= kPlansMax) forget_plans();
  const Key key = key_of(p);
  auto place = plans_.find(key);
  if (place == plans_.end()) place = plans_.emplace(key, make_plan(p)).first;
  const Plan& plan = place->second;
  if (!plan.is_supported) return BlasAnswer::not_supported;
  const float one = 1;
  const float zero = 0;
  CUDA_MUST(cublasLtMatmul(handle_, plan.product, &one, p.weight, plan.weight, p.x, plan.x, &zero,
                           p.out, plan.out, p.out, plan.out, &plan.algorithm, workspace_.data(),
                           static_cast<size_t>(kWorkspaceBytes), stream_));
  return BlasAnswer::done;
}

}  // namespace quire::cuda
