// One round of looks at a fork family: decides, page by page in stretches, what became of the holders since the round
// before. Private to page_sharing.cc and sharing_round.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "attribute/page_sharing.h"
#include "attribute/range_cursor.h"

namespace whyrss {

class SharingRound {
 public:
  SharingRound(PageSharing& sharing, const std::vector<PageSharing::Look>& looks, double time_s);
  std::vector<std::vector<FateRange>> play();

 private:
  using Member = PageSharing::Member;
  using Group = PageSharing::Group;
  enum class Seen : std::uint8_t { not_looked, gone, with_others, alone };
  enum class Wrote : std::uint8_t { not_known, no, yes };
  struct Sight {
    Seen seen = Seen::not_looked;
    Wrote wrote = Wrote::not_known;
    bool whole = false;   // mapped 2 MiB at a time, as no page is that was written to while others had it
    bool merged = false;  // the kernel has copied it with others into 2 MiB of the process's own
  };
  // One look, read along as addresses grow.
  struct Watcher {
    Watcher(const PageSharing::Look& look, const PageSharing::Process& process);
    Member member;
    std::uint64_t copies_left;  // pages that it may be guessed to have copied
    double wrote_s;
    std::vector<Range> marked, whole, rewritten;
    bool knows_whole;
    const std::vector<AnonymousRun>& seen;
    RangeCursor<AnonymousRun> runs;
    RangeCursor<Range> marks, wholes;
    Sight sight;  // of the stretch at hand
  };
  // What the groups of one stretch came to.
  struct Outcome {
    std::vector<std::pair<Member, PageFate>> fates;
    std::vector<Member> guessed;  // of those that copied: only because their faults allow it
    std::vector<Group> groups;    // what is left of them
    void add(const std::vector<Member>& members, PageFate fate) {
      for (const Member member : members) fates.emplace_back(member, fate);
    }
  };
  // The holders of one group by what was seen of them, and by what was made of that.
  struct Parts {
    std::vector<Member> gone, wrote, with_others, alone, not_looked;
    std::vector<Member> copied;    // found to have copied before, not counted yet
    std::optional<Member> keeper;  // holds the page alone
    [[nodiscard]] std::vector<Member> stay() const;
  };

  std::uint64_t look_at(std::uint64_t at, std::uint64_t end);
  [[nodiscard]] Sight sight_of(Member member) const;
  [[nodiscard]] std::vector<Member> followers(const Group& group, Member parent) const;
  void take_missing(Group& group, Outcome& outcome) const;
  void resolve(const Group& group, Outcome& outcome) const;
  [[nodiscard]] Parts part(const Group& group) const;
  void part_from_children(const Group& group, Parts& parts, Outcome& outcome) const;
  [[nodiscard]] bool part_from_copier(const Group& group, Parts& parts, Outcome& outcome) const;
  void settle_alone(Parts& parts, Outcome& outcome) const;
  void guess_alone(Parts& parts, Outcome& outcome) const;
  void settle_writers(const Group& group, const Parts& parts, Outcome& outcome) const;
  [[nodiscard]] bool wrote_before_the_end(const Group& group, const Parts& parts) const;
  void take(Outcome outcome, std::uint64_t start, std::uint64_t end, IntervalMap<PageSharing::Groups>& pages);

  PageSharing& sharing_;
  double time_s_;
  std::vector<std::unique_ptr<Watcher>> watchers_;
  std::vector<Watcher*> by_member_;  // nullptr: not looked at
  std::vector<std::vector<FateRange>> fates_;
};

}  // namespace whyrss
