// One round of walks of a fork family: decides, page by page in stretches, what became of the holders since the round
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
  SharingRound(PageSharing& sharing, const std::vector<PageSharing::Walk>& walks, double time_s);
  std::vector<std::vector<TransitionRange>> play();

 private:
  using Member = PageSharing::Member;
  using Group = PageSharing::Group;
  enum class Holding : std::uint8_t { not_walked, gone, with_others, alone };
  enum class Wrote : std::uint8_t { not_known, no, yes };
  struct Observation {
    Holding holding = Holding::not_walked;
    Wrote wrote = Wrote::not_known;
    double marked_s = 0;  // since when that is known
    bool whole = false;   // mapped 2 MiB at a time, as no page is that was written to while others had it
    bool merged = false;  // the kernel has copied it with others into 2 MiB of the process's own
  };
  struct Marked : Range {
    double since_s = 0;
  };
  // One walk, read along as addresses grow.
  struct Watcher {
    Watcher(const PageSharing::Walk& walk, const PageSharing::Process& process);
    Member member;
    std::uint64_t copies_left;  // pages that it may be guessed to have copied
    double wrote_s, walked_s;
    std::vector<Marked> marked;
    std::vector<Range> whole, rewritten;
    std::uint64_t guessed_pages = 0, refused_pages = 0;  // taken for its copies; not, as its faults do not suffice
    bool knows_whole;
    const std::vector<AnonymousRun>& holding;
    RangeCursor<AnonymousRun> runs;
    RangeCursor<Marked> marks;
    RangeCursor<Range> wholes;
    Observation observation;  // of the stretch at hand
  };
  // What the groups of one stretch came to.
  struct Outcome {
    std::vector<std::pair<Member, PageTransition>> transitions;
    std::vector<Member> guessed;  // of those that copied: only because their faults allow it
    std::vector<Member> refused;  // may have copied as well, but for their faults
    std::vector<Group> groups;    // what is left of them
    void add(const std::vector<Member>& members, PageTransition transition) {
      for (const Member member : members) transitions.emplace_back(member, transition);
    }
  };
  // The holders of one group, by what their walks showed and by what follows from that.
  struct HolderClasses {
    std::vector<Member> gone, wrote, with_others, alone, not_walked;
    std::vector<Member> copied;         // found to have copied before, not counted yet
    std::optional<Member> sole_holder;  // holds the page alone
    [[nodiscard]] std::vector<Member> stay() const;
  };

  std::uint64_t observe_at(std::uint64_t at, std::uint64_t end);
  [[nodiscard]] Observation observation_of(Member member) const;
  [[nodiscard]] std::vector<Member> followers(const Group& group, Member parent) const;
  [[nodiscard]] bool kept_its_page(Member member) const;
  [[nodiscard]] bool is_marked_later(Member member, double shared_s) const;
  [[nodiscard]] bool may_share(Member member) const;
  static void give_back(Group& group, std::vector<Member> unwritten, Outcome& outcome);
  void take_missing(Group& group, const PageSharing::Groups& groups, Outcome& outcome) const;
  void resolve(const Group& group, const PageSharing::Groups& groups, Outcome& outcome) const;
  [[nodiscard]] HolderClasses classify(const Group& group) const;
  void classify_by_children(const Group& group, HolderClasses& classes, Outcome& outcome) const;
  [[nodiscard]] bool classify_by_copier(const Group& group, HolderClasses& classes, Outcome& outcome) const;
  void settle_alone(HolderClasses& classes, Outcome& outcome) const;
  [[nodiscard]] bool is_alone_since(const HolderClasses& classes) const;
  void guess_alone(HolderClasses& classes, Outcome& outcome) const;
  void settle_writers(const Group& group, const HolderClasses& classes, Outcome& outcome) const;
  [[nodiscard]] bool wrote_before_the_end(const Group& group, const HolderClasses& classes) const;
  void mark_doubtful();
  void take(Outcome outcome, std::uint64_t start, std::uint64_t end, IntervalMap<PageSharing::Groups>& pages);

  PageSharing& sharing_;
  double time_s_;
  std::vector<std::unique_ptr<Watcher>> watchers_;
  std::vector<Watcher*> by_member_;  // nullptr: not walked
  std::vector<std::vector<TransitionRange>> transitions_;
};

}  // namespace whyrss
