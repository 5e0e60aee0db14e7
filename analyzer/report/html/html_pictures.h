// The pictures of address spaces, as columns of the HTML page.
#pragma once

#include <cstddef>

#include "model/account.h"
#include "report/html/html_columns.h"
#include "report/html/html_stacks.h"

namespace whyrss {

// At most.
struct HtmlPictureBounds {
  std::size_t entries = 0;      // PageMap::entries() of all pictures
  std::size_t stack_nodes = 0;  // of the page: stacks that would need more are not known
};

// Of each process the last picture and those with the most memory come first. Returns how many are left out.
std::size_t write_pictures(const RecordingAccount& recording, const HtmlPictureBounds& bounds, HtmlStacks& stacks,
                           HtmlStrings& strings, HtmlColumns& columns);

}  // namespace whyrss
