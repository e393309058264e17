#include "cuda/common/recordings.h"

#include "base/check.h"
#include "cuda/common/cuda_must.h"

namespace quire::cuda {

namespace {

void ask_for_shared_memory(const std::vector<cudaGraphNode_t>& nodes) {
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    CUDA_MUST(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeAttrValue value{};
    value.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    CUDA_MUST(cudaGraphKernelNodeSetAttribute(
        node, cudaKernelNodeAttributePreferredSharedMemoryCarveout, &value));
  }
}

}  // namespace

Recordings::~Recordings() {
  for (cudaGraphExec_t graph : graphs_) CUDA_MUST(cudaGraphExecDestroy(graph));
}

int Recordings::add(const std::function<void()>& calls, const std::function<bool()>& wants_shared) {
  CUDA_MUST(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  calls();
  cudaGraph_t graph = nullptr;
  CUDA_MUST(cudaStreamEndCapture(stream_, &graph));
  size_t n_nodes = 0;
  CUDA_MUST(cudaGraphGetNodes(graph, nullptr, &n_nodes));
  std::vector<cudaGraphNode_t> nodes(n_nodes);
  CUDA_MUST(cudaGraphGetNodes(graph, nodes.data(), &n_nodes));
  if (wants_shared()) ask_for_shared_memory(nodes);
  cudaGraphExec_t made = nullptr;
  CUDA_MUST(cudaGraphInstantiate(&made, graph, 0));
  CUDA_MUST(cudaGraphDestroy(graph));
  CUDA_MUST(cudaGraphUpload(made, stream_));
  graphs_.push_back(made);
  n_nodes_.push_back(static_cast<int64_t>(n_nodes));
  return static_cast<int>(graphs_.size()) - 1;
}

void Recordings::replay(int number) const {
  CHECK(number >= 0 && static_cast<size_t>(number) < graphs_.size());
  CUDA_MUST(cudaGraphLaunch(graphs_[static_cast<size_t>(number)], stream_));
}

}  // namespace quire::cuda
