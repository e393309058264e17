#include "format/safetensors.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/bytes.h"
#include "base/json.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr int64_t kLengthBytes = 8;

// Reads one header; everything it refuses names the file.
class HeaderReader {
 public:
  HeaderReader(std::string_view file_name, int64_t data_offset, int64_t data_bytes)
      : file_name_(file_name), data_offset_(data_offset), data_bytes_(data_bytes) {}

  Result<TensorEntry> read_tensor(const std::string& name, const Json& value) const;
  Status check_metadata(const Json& value) const;
  // `tensors` are in order of offset.
  Status check_cover(const std::vector<TensorEntry>& tensors) const;

 private:
  Error refuse(std::string_view name, const std::string& what) const {
    return invalid_argument(format("%s: tensor \"%s\": %s", std::string(file_name_).c_str(),
                                   excerpt(name).c_str(), what.c_str()));
  }

  Status read_shape(const std::string& name, const Json& value, TensorEntry* entry) const;
  Status read_offsets(const std::string& name, const Json& value, TensorEntry* entry) const;

  std::string_view file_name_;
  int64_t data_offset_;
  int64_t data_bytes_;
};

std::optional<Dtype> find_dtype(std::string_view text) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::f16, Dtype::f8_e4m3, Dtype::i32,
                            Dtype::i64, Dtype::u8, Dtype::i8}) {
    if (text == name(dtype)) return dtype;
  }
  return std::nullopt;
}

// A number written as a non-negative integer that fits; "1.0" and "-0" are not.
std::optional<int64_t> find_size(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(number);
}

const Json* find_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

Status HeaderReader::read_shape(const std::string& name, const Json& value,
                                TensorEntry* entry) const {
  if (!value.is_array() || value.size() > kTensorRankMax) {
    return refuse(name, format("shape is not an array of at most %zu sizes", kTensorRankMax));
  }
  int64_t bytes = size_of(entry->dtype);
  for (const Json& extent : value) {
    const std::optional<int64_t> size = find_size(extent);
    if (!size) return refuse(name, "shape holds something that is not a size");
    entry->shape.push_back(*size);
    // A later 0 does not excuse an overflow before it.
    if (!checked_product(bytes, std::max<int64_t>(*size, 1), &bytes)) {
      return refuse(name, "the product of its shape overflows");
    }
  }
  const bool is_empty =
      std::find(entry->shape.begin(), entry->shape.end(), 0) != entry->shape.end();
  entry->bytes = is_empty ? 0 : bytes;
  return {};
}

Status HeaderReader::read_offsets(const std::string& name, const Json& value,
                                  TensorEntry* entry) const {
  if (!value.is_array() || value.size() != 2) {
    return refuse(name, "data_offsets is not an array of two offsets");
  }
  const std::optional<int64_t> begin = find_size(value[0]);
  const std::optional<int64_t> end = find_size(value[1]);
  if (!begin || !end) return refuse(name, "data_offsets holds something that is not an offset");
  if (*begin > *end || *end > data_bytes_) {
    return refuse(name, format("data_offsets [%lld, %lld] are not a range of the %lld data bytes",
                               static_cast<long long>(*begin), static_cast<long long>(*end),
                               static_cast<long long>(data_bytes_)));
  }
  if (*end - *begin != entry->bytes) {
    return refuse(
        name, format("%s is %lld bytes, its data_offsets span %lld", describe(*entry).c_str(),
                     static_cast<long long>(entry->bytes), static_cast<long long>(*end - *begin)));
  }
  entry->offset = data_offset_ + *begin;
  return {};
}

Result<TensorEntry> HeaderReader::read_tensor(const std::string& name, const Json& value) const {
  if (name.empty()) return refuse(name, "a tensor has no name");
  if (!value.is_object()) return refuse(name, "its entry is not an object");
  const Json* dtype = find_member(value, "dtype");
  const Json* shape = find_member(value, "shape");
  const Json* offsets = find_member(value, "data_offsets");
  if (dtype == nullptr || shape == nullptr || offsets == nullptr) {
    return refuse(name, "its entry lacks dtype, shape or data_offsets");
  }
  if (!dtype->is_string()) return refuse(name, "dtype is not a string");
  const auto& dtype_text = dtype->get_ref<const std::string&>();
  const std::optional<Dtype> known = find_dtype(dtype_text);
  if (!known) return refuse(name, format("unknown dtype \"%s\"", excerpt(dtype_text).c_str()));
  TensorEntry entry{.name = name, .dtype = *known};
  TRY_OK(read_shape(name, *shape, &entry));
  TRY_OK(read_offsets(name, *offsets, &entry));
  return entry;
}

Status HeaderReader::check_metadata(const Json& value) const {
  const bool is_text =
      value.is_object() &&
      std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_string(); });
  return is_text ? Status() : refuse("__metadata__", "expected an object of strings");
}

Status HeaderReader::check_cover(const std::vector<TensorEntry>& tensors) const {
  int64_t at = data_offset_;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.offset != at) {
      return refuse(tensor.name, format("its data begins at %lld, expected %lld: the data has %s",
                                        static_cast<long long>(tensor.offset - data_offset_),
                                        static_cast<long long>(at - data_offset_),
                                        tensor.offset > at ? "a gap" : "an overlap"));
    }
    at += tensor.bytes;
  }
  if (at == data_offset_ + data_bytes_) return {};
  return invalid_argument(format("%s: the tensors cover %lld bytes of data, the file holds %lld",
                                 std::string(file_name_).c_str(),
                                 static_cast<long long>(at - data_offset_),
                                 static_cast<long long>(data_bytes_)));
}

// The header's text, once its length is known to fit.
Result<std::string_view> find_header(std::span<const std::byte> file, std::string_view file_name) {
  const std::string name(file_name);
  if (file.size() < static_cast<size_t>(kLengthBytes)) {
    return invalid_argument(
        format("%s: %zu bytes cannot hold a safetensors header", name.c_str(), file.size()));
  }
  const auto length = load_le<uint64_t>(file, 0);
  if (length > static_cast<uint64_t>(kSafetensorsHeaderBytesMax)) {
    return invalid_argument(format("%s: header of %llu bytes, expected at most %lld", name.c_str(),
                                   static_cast<unsigned long long>(length),
                                   static_cast<long long>(kSafetensorsHeaderBytesMax)));
  }
  if (length > file.size() - static_cast<size_t>(kLengthBytes)) {
    return invalid_argument(format("%s: header of %llu bytes in a file of %zu: truncated?",
                                   name.c_str(), static_cast<unsigned long long>(length),
                                   file.size()));
  }
  const auto* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  return std::string_view(text, static_cast<size_t>(length));
}

}  // namespace

std::string safetensors_header(std::span<const TensorEntry> tensors) {
  std::string json = "{";
  int64_t at = 0;
  for (const TensorEntry& tensor : tensors) {
    if (json.size() > 1) json += ',';
    json += dump_json(tensor.name) + ":{\"dtype\":\"" + std::string(name(tensor.dtype)) +
            "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      json += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    }
    json += format("],\"data_offsets\":[%lld,%lld]}", static_cast<long long>(at),
                   static_cast<long long>(at + tensor.bytes));
    at += tensor.bytes;
  }
  json += '}';
  const int64_t end = kLengthBytes + static_cast<int64_t>(json.size());
  json.resize(json.size() + static_cast<size_t>(round_up(end, kSafetensorsAlignment) - end), ' ');
  std::string out(kLengthBytes, '\0');
  store_le(std::as_writable_bytes(std::span(out)), 0, static_cast<uint64_t>(json.size()));
  return out + json;
}

std::string describe(const TensorEntry& tensor) {
  std::string out(name(tensor.dtype));
  out += " [";
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (axis > 0) out += ", ";
    out += std::to_string(tensor.shape[axis]);
  }
  return out + "]";
}

Result<SafetensorsIndex> parse_safetensors(std::span<const std::byte> file,
                                           std::string_view file_name) {
  const std::string_view text = TRY(find_header(file, file_name));
  // Nested three deep: header, entry, shape. A tensor is about nine values of the whole.
  const JsonLimits limits{.bytes_max = static_cast<size_t>(kSafetensorsHeaderBytesMax),
                          .depth_max = 3,
                          .nodes_max = 20'000'000};
  const Result<Json> header = parse_json(text, limits);
  if (!header.ok()) {
    return invalid_argument(
        format("%s: header: %s", std::string(file_name).c_str(), header.error().message.c_str()));
  }
  if (!header.value().is_object() || text.front() != '{') {
    return invalid_argument(std::string(file_name) + ": the header is not a JSON object");
  }
  const int64_t data_offset = kLengthBytes + static_cast<int64_t>(text.size());
  const HeaderReader reader(file_name, data_offset,
                            static_cast<int64_t>(file.size()) - data_offset);
  SafetensorsIndex index;
  for (const auto& [tensor_name, value] : header.value().items()) {
    if (tensor_name == "__metadata__") {
      TRY_OK(reader.check_metadata(value));
    } else {
      index.tensors.push_back(TRY(reader.read_tensor(tensor_name, value)));
    }
  }
  // Tensors without data may share an offset with what follows them.
  std::sort(index.tensors.begin(), index.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
            });
  TRY_OK(reader.check_cover(index.tensors));
  return index;
}

}  // namespace quire
