// The sites of a cause in the JSON report: memory by the stack that asked for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "report/render/stack_json.h"
#include "report/view/view.h"

namespace whyrss {

// Schema 2 keeps of a site, or of one who touched it, the line to blame alone when it is smaller than this or than
// twice its error. Of real jobs 80 to 90 % of the sites are such, one sample each.
constexpr std::int64_t kSmallSiteBytes = 64 << 10;

struct SiteStyle {
  // Sites kept per cause, the others summed in one with an empty stack; 0 keeps all.
  std::size_t top = 0;
  bool keeps_small_sites = false;  // with all their frames, in schema 2 too
};

// Largest growth first. Their bytes sum to the cause's.
nlohmann::ordered_json sites_json(StackJson& stacks, const CauseView& cause, const SiteStyle& style);
nlohmann::ordered_json cow_sites_json(StackJson& stacks, const std::vector<CowSiteView>& sites, const SiteStyle& style);

// Bytes.
std::int64_t rounded_error(double variance);

}  // namespace whyrss
