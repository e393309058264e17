#include "tools/calibration_texts.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "text/tokenizer.h"

namespace quire {

namespace {

constexpr size_t kFileBytesMax = size_t{1} << 30;

class Reader {
 public:
  Reader(const std::string& model_dir, int64_t tokens_max)
      : model_dir_(model_dir), n_left_(tokens_max) {}

  bool is_full() const { return n_left_ == 0; }
  Status read_line(const std::string& line);
  CalibrationTexts take() { return std::move(texts_); }

 private:
  Status append_ids(const Json& ids, std::vector<Token>* out) const;
  Status append_turns(const Json& turns, std::vector<Token>* out) const;

  const std::string& model_dir_;
  std::optional<Tokenizer> tokenizer_;
  CalibrationTexts texts_;
  int64_t n_left_;  // tokens
};

Status Reader::append_ids(const Json& ids, std::vector<Token>* out) const {
  if (!ids.is_array()) return invalid_argument("ids are not a list");
  for (const Json& id : ids) {
    if (!id.is_number_unsigned() ||
        id.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<Token>::max())) {
      return invalid_argument("an id is not a whole number: " + excerpt(dump_json(id)));
    }
    out->push_back(id.get<Token>());
  }
  return {};
}

Status Reader::append_turns(const Json& turns, std::vector<Token>* out) const {
  if (!turns.is_array()) return invalid_argument("turns are not a list");
  for (const Json& turn : turns) {
    for (const char* part : {"prompt_ids", "expected_ids"}) {
      if (!turn.is_object() || !turn.contains(part)) {
        return invalid_argument(std::string("a turn without ") + part);
      }
      TRY_OK(append_ids(turn[part], out));
    }
  }
  return {};
}

Status Reader::read_line(const std::string& line) {
  const Json json = TRY(parse_json(line));
  std::vector<Token> ids;
  if (json.is_object() && json.contains("ids")) {
    TRY_OK(append_ids(json["ids"], &ids));
  } else if (json.is_object() && json.contains("turns")) {
    TRY_OK(append_turns(json["turns"], &ids));
  } else if (json.is_object() && json.contains("text") && json["text"].is_string()) {
    if (!tokenizer_) tokenizer_.emplace(TRY(Tokenizer::load(model_dir_)));
    ids = tokenizer_->encode(json["text"].get<std::string>());
  } else {
    return invalid_argument(R"(expected {"text"}, {"ids"} or {"turns"})");
  }
  ids.resize(std::min(ids.size(), static_cast<size_t>(n_left_)));
  n_left_ -= static_cast<int64_t>(ids.size());
  if (!ids.empty()) texts_.push_back(std::move(ids));
  return {};
}

}  // namespace

Result<CalibrationTexts> read_calibration_texts(const std::vector<std::string>& paths,
                                                const std::string& model_dir, int64_t tokens_max) {
  Reader reader(model_dir, tokens_max);
  for (const std::string& path : paths) {
    std::istringstream lines(TRY(read_text_file(path, kFileBytesMax)));
    std::string line;
    for (int number = 1; !reader.is_full() && std::getline(lines, line); ++number) {
      if (line.empty()) continue;
      const Status status = reader.read_line(line);
      if (status.ok()) continue;
      Error error = status.error();
      error.message = format("%s: line %d: ", path.c_str(), number) + error.message;
      return error;
    }
  }
  CalibrationTexts texts = reader.take();
  if (texts.empty()) return invalid_argument("the calibration texts hold no tokens");
  return texts;
}

}  // namespace quire
