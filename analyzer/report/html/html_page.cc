#include "report/html/html_page.h"

#include <array>
#include <cstdint>

#include "model/cause.h"
#include "support/result.h"

// analyzer/web/dist/report.html, put in by html_template.S.
extern "C" {
extern const char kHtmlTemplate[];
extern const char kHtmlTemplateEnd[];
}

namespace whyrss {
namespace {

constexpr std::string_view kHole = "<!--DATA-->";

std::string base64(std::string_view data) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((data.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < data.size(); i += 3) {
    const auto byte = [&](std::size_t at) {
      return at < data.size() ? static_cast<std::uint32_t>(static_cast<unsigned char>(data[at])) : 0U;
    };
    const std::uint32_t three = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    for (const int shift : {18, 12, 6, 0}) text += kDigits[three >> shift & 63];
  }
  if (data.size() % 3 != 0)
    text.replace(text.size() - (3 - data.size() % 3), std::string::npos, 3 - data.size() % 3, '=');
  return text;
}

}  // namespace

nlohmann::ordered_json html_causes() {
  nlohmann::ordered_json causes = nlohmann::ordered_json::array();
  for (const CauseInfo& cause : kCauses)
    causes.push_back({{"slug", cause.slug}, {"title", cause.title}, {"comes_back", cause.comes_back}});
  return causes;
}

void write_page(std::string_view packed, const std::function<void(std::string_view)>& write) {
  const std::string_view page(kHtmlTemplate, static_cast<std::size_t>(kHtmlTemplateEnd - kHtmlTemplate));
  const std::size_t hole = page.find(kHole);
  require(hole != std::string_view::npos, "the page has a place for the data");
  write(page.substr(0, hole));
  write("<script type=\"text/plain\" id=\"data\">");
  write(base64(packed));
  write("</script>");
  write(page.substr(hole + kHole.size()));
}

}  // namespace whyrss
