#include "tools/model_source.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/text.h"
#include "cpu/cpu_backend.h"
#ifdef QUIRE_CUDA
#include "cuda/cuda_backend.h"
#endif
#include "format/checkpoint.h"
#include "tools/progress_bar.h"
#include "weights/loader.h"

namespace quire {

namespace {

Result<std::unique_ptr<Backend>> make_backend(const ModelSource& source) {
  if (source.device == "cpu") {
    const int usable = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    return make_cpu_backend(source.n_threads > 0 ? source.n_threads : usable);
  }
  if (source.device == "cuda") {
#ifdef QUIRE_CUDA
    return make_cuda_backend(
        {.deterministic = source.deterministic ? Deterministic::yes : Deterministic::no});
#else
    return unsupported("--device cuda: this build has no CUDA backend");
#endif
  }
  return invalid_argument(
      format("--device: expected cpu or cuda, found '%s'", excerpt(source.device).c_str()));
}

}  // namespace

Result<LoadedModel> load_model(const ModelSource& source) {
  LoadedModel model{.dir = source.dir, .config = TRY(read_model_config(source.dir))};
  TRY_OK(check_supported(model.config));
  Checkpoint checkpoint = TRY(Checkpoint::open(source.dir));

  model.backend = TRY(make_backend(source));
  ProgressBar bar("loading " + source.dir);
  model.weights = TRY(
      load_weights(std::move(checkpoint), model.config.shape, model.config.weights, *model.backend,
                   [&bar](int64_t done, int64_t total) { bar.update(done, total); }));
  bar.finish();
  return model;
}

}  // namespace quire
