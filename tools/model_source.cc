#include "tools/model_source.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "cpu/cpu_backend.h"
#include "format/checkpoint.h"
#include "tools/progress_bar.h"
#include "weights/loader.h"

namespace quire {

Result<LoadedModel> load_model(const ModelSource& source) {
  LoadedModel model{.dir = source.dir, .config = TRY(read_model_config(source.dir))};
  TRY_OK(check_supported(model.config));
  Checkpoint checkpoint = TRY(Checkpoint::open(source.dir));

  const int usable = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  model.backend = make_cpu_backend(source.n_threads > 0 ? source.n_threads : usable);
  ProgressBar bar("loading " + source.dir);
  model.weights = TRY(
      load_weights(std::move(checkpoint), model.config.shape, model.config.weights, *model.backend,
                   [&bar](int64_t done, int64_t total) { bar.update(done, total); }));
  bar.finish();
  return model;
}

}  // namespace quire
