// ChunkedBody: decodes a request body that comes in chunks (RFC 9112, 7.1), byte by byte if need
// be.
//
// Strict: a size has one to eight hexadecimal digits and nothing around them, every line ends with
// CR LF, extensions and trailers are bounded and dropped. Declared sizes count at once, so that
// nothing past the limit is ever kept. Neither recursion nor memory by the number of chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/http.h"

namespace quire {

class ChunkedBody {
 public:
  enum class State : uint8_t { more, complete, malformed, too_large };

  // `limits` outlives this.
  explicit ChunkedBody(const HttpLimits& limits) : limits_(limits) {}

  // Takes from the front of `bytes` what belongs to the body and appends its data to `body`;
  // returns how much it took. Nothing more once the state is not `more`.
  size_t feed(std::string_view bytes, std::string* body);

  State state() const { return state_; }

 private:
  enum class Part : uint8_t { size_line, data, data_end, trailers };

  // Takes up to the end of a line into line_; true when it is whole.
  bool take_line(std::string_view* bytes);
  void end_size_line();
  void end_data();
  void end_trailer();

  const HttpLimits& limits_;
  State state_ = State::more;
  Part part_ = Part::size_line;
  std::string line_;
  size_t chunk_left_ = 0;  // of the data of this chunk
  uint64_t declared_ = 0;  // bytes of all chunks so far
  size_t n_chunks_ = 0;
  size_t trailer_bytes_ = 0;
};

}  // namespace quire
