#include "report/render/gzip.h"

#include <zlib.h>

#include "support/result.h"

namespace whyrss {

std::string gzipped(std::string_view bytes, int level) {
  constexpr int kWindow = 15 + 16;  // the largest, with gzip's header
  constexpr int kMemoryLevel = 9;
  z_stream stream{};
  require(deflateInit2(&stream, level, Z_DEFLATED, kWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) == Z_OK,
          "zlib cannot start");
  std::string out, buffer(1U << 16, '\0');
  std::string_view rest = bytes;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (stream.avail_in == 0) {  // its counters have 32 bits
      const std::string_view piece = rest.substr(0, 1U << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));  // NOLINT: zlib does not write to it
      stream.avail_in = static_cast<uInt>(piece.size());
      rest.remove_prefix(piece.size());
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());  // NOLINT: bytes
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = deflate(&stream, rest.empty() ? Z_FINISH : Z_NO_FLUSH);
    require(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, "zlib cannot compress");
    out.append(buffer, 0, buffer.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

}  // namespace whyrss
