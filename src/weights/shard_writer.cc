#include "weights/shard_writer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "tensor/random_values.h"
#include "weights/dummy.h"

namespace quire {

namespace {

constexpr int64_t kFileBytes = int64_t{4} << 30;   // as publishers cut them
constexpr int64_t kPieceBytes = int64_t{4} << 20;  // what a thread makes and writes at once
constexpr const char* kShardFile = "shard.json";

// An array on its way into a file. `tensor` owns the slice.
struct Array {
  const TensorSlice* tensor;
  const ArraySlice* slice;
  size_t file = 0;
  int64_t offset = 0;  // in its file
};

// Rows [begin, begin + n) of an array.
struct Piece {
  size_t array;
  int64_t begin;
  int64_t n;
};

TensorEntry entry_of(const Array& array) {
  TensorEntry entry = array.slice->array->entry;
  entry.bytes = array.slice->bytes();
  if (entry.shape.size() == 2) {
    entry.shape = {array.slice->n_rows, array.slice->n_columns};
  }
  return entry;
}

void read_rows(const Array& array, const Piece& piece, std::vector<std::byte>* out) {
  const ArraySlice& slice = *array.slice;
  const int64_t row_bytes = slice.row_bytes();
  out->resize(static_cast<size_t>(piece.n * row_bytes));
  const std::byte* data = slice.data();
  const RandomArray values = data == nullptr ? dummy_values(*array.tensor, slice) : RandomArray{};
  for (int64_t row = 0; row < piece.n; ++row) {
    std::byte* to = out->data() + row * row_bytes;
    if (data == nullptr) {
      random_row(values, piece.begin + row, to);
    } else {
      std::memcpy(to, data + (piece.begin + row) * slice.stride * slice.element_bytes(),
                  static_cast<size_t>(row_bytes));
    }
  }
}

class Writer {
 public:
  Writer(std::span<const TensorSlice> tensors, std::string dir) : dir_(std::move(dir)) {
    for (const TensorSlice& tensor : tensors) {
      for (const ArraySlice* slice : {&tensor.values, &tensor.scales}) {
        if (slice->array != nullptr) arrays_.push_back({&tensor, slice});
      }
    }
  }

  Result<WrittenShard> write(int n_threads, const LoadProgress& progress);

 private:
  std::string file_name(size_t file) const {
    return format("model-%05zu-of-%05zu.safetensors", file + 1, entries_.size());
  }
  void assign_files();
  Status create_files();
  Status write_pieces(int n_threads, const LoadProgress& progress);
  Status write_index() const;

  std::string dir_;
  std::vector<Array> arrays_;
  std::vector<std::vector<TensorEntry>> entries_;  // of each file
  std::vector<OutputFile> files_;
  int64_t bytes_ = 0;
};

void Writer::assign_files() {
  int64_t room = 0;
  for (Array& array : arrays_) {
    TensorEntry entry = entry_of(array);
    if (entry.bytes > room) {
      entries_.emplace_back();
      room = kFileBytes;
    }
    room -= entry.bytes;
    bytes_ += entry.bytes;
    array.file = entries_.size() - 1;
    entries_.back().push_back(std::move(entry));
  }
}

Status Writer::create_files() {
  size_t at = 0;
  for (size_t file = 0; file < entries_.size(); ++file) {
    const std::string header = safetensors_header(entries_[file]);
    auto offset = static_cast<int64_t>(header.size());
    for (; at < arrays_.size() && arrays_[at].file == file; ++at) {
      arrays_[at].offset = offset;
      offset += arrays_[at].slice->bytes();
    }
    files_.push_back(TRY(OutputFile::create(dir_ + "/" + file_name(file), offset)));
    TRY_OK(files_.back().write_at(0, std::as_bytes(std::span(header.data(), header.size()))));
  }
  return {};
}

Status Writer::write_pieces(int n_threads, const LoadProgress& progress) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < arrays_.size(); ++i) {
    const ArraySlice& slice = *arrays_[i].slice;
    const int64_t rows = std::max<int64_t>(kPieceBytes / slice.row_bytes(), 1);
    for (int64_t begin = 0; begin < slice.n_rows; begin += rows) {
      pieces.push_back({i, begin, std::min(rows, slice.n_rows - begin)});
    }
  }
  std::mutex mutex;  // guards what follows
  Status failed;
  int64_t done = 0;
  ThreadPool threads(n_threads);
  threads.parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t begin, int64_t end) {
    std::vector<std::byte> rows;
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      const Array& array = arrays_[piece.array];
      read_rows(array, piece, &rows);
      const Status written =
          files_[array.file].write_at(array.offset + piece.begin * array.slice->row_bytes(), rows);
      const std::lock_guard lock(mutex);
      if (!written.ok()) failed = written;
      if (!failed.ok()) return;
      done += static_cast<int64_t>(rows.size());
      if (progress) progress(done, bytes_);
    }
  });
  return failed;
}

Status Writer::write_index() const {
  std::string json = format("{\"metadata\":{\"total_size\":%lld},\"weight_map\":{",
                            static_cast<long long>(bytes_));
  for (size_t file = 0; file < entries_.size(); ++file) {
    for (const TensorEntry& entry : entries_[file]) {
      if (json.back() != '{') json += ',';
      json += dump_json(entry.name) + ":\"" + file_name(file) + "\"";
    }
  }
  return write_text_file(dir_ + "/model.safetensors.index.json", json + "}}");
}

Result<WrittenShard> Writer::write(int n_threads, const LoadProgress& progress) {
  assign_files();
  TRY_OK(create_files());
  TRY_OK(write_pieces(n_threads, progress));
  for (OutputFile& file : files_) TRY_OK(file.finish());
  TRY_OK(write_index());
  return WrittenShard{.n_files = static_cast<int64_t>(files_.size()),
                      .n_arrays = static_cast<int64_t>(arrays_.size()),
                      .bytes = bytes_};
}

}  // namespace

Result<WrittenShard> write_shard(const LoadRequest& request, const std::string& dir,
                                 const std::string& config_json, const LoadProgress& progress) {
  if (request.source.scheme == WeightScheme::nvfp4) {
    return unsupported(request.checkpoint.dir() + ": NVFP4 weights cannot be cut into files");
  }
  TRY(shape_of_rank(request.shape, request.partition));
  const std::vector<ResolvedTensor> tensors =
      TRY(resolve_checkpoint(request.checkpoint, request.shape, request.source));
  std::vector<TensorSlice> parts;
  for (const ResolvedTensor& tensor : tensors) {
    parts.push_back(TRY(slice_of(tensor, request.partition)));
  }
  const WrittenShard written = TRY(Writer(parts, dir).write(request.n_threads, progress));
  TRY_OK(write_text_file(dir + "/config.json", config_json));
  const Json shard = {{"rank", request.partition.rank}, {"n_ranks", request.partition.n_ranks}};
  TRY_OK(write_text_file(dir + "/" + kShardFile, dump_json(shard) + "\n"));
  return written;
}

Result<std::optional<Partition>> read_partition(const std::string& dir) {
  const std::string path = dir + "/" + kShardFile;
  const Result<std::string> text = read_text_file(path, size_t{1} << 16);
  if (!text.ok() && text.error().code == ErrorCode::not_found) return std::optional<Partition>();
  if (!text.ok()) return text.error();
  const Result<Json> json = parse_json(text.value());
  if (!json.ok()) return invalid_argument(path + ": " + json.error().message);
  const auto field = [&](const char* key) -> int64_t {
    const auto found = json.value().is_object() ? json.value().find(key) : json.value().end();
    return found != json.value().end() && found->is_number_integer() ? found->get<int64_t>() : -1;
  };
  const Partition out{.rank = field("rank"), .n_ranks = field("n_ranks")};
  if (out.rank < 0 || out.n_ranks <= out.rank || out.n_ranks > 1 << 16) {
    return invalid_argument(path + ": expected \"rank\" below \"n_ranks\"");
  }
  return std::optional<Partition>(out);
}

}  // namespace quire
