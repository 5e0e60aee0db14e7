// Something for a C++ compiler to chew on: maps, regular expressions, futures.
#include <algorithm>
#include <future>
#include <iostream>
#include <map>
#include <numeric>
#include <regex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

using Value = std::variant<int, double, std::string, std::vector<int>>;

template <int N>
struct Chain {
  static int sum() { return N + Chain<N - 1>::sum(); }
};
template <>
struct Chain<0> {
  static int sum() { return 0; }
};

int main() {
  std::map<std::string, std::vector<Value>> values;
  std::unordered_map<int, std::string> names;
  const std::regex word("([a-z]+)([0-9]+)");
  for (int i = 0; i < 1000; ++i) names[i] = std::regex_replace("abc" + std::to_string(i), word, "$2$1");
  for (const auto& [number, name] : names) values[name].emplace_back(number);
  auto later = std::async(std::launch::async, [] { return Chain<200>::sum(); });
  std::vector<double> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0.0);
  std::sort(numbers.rbegin(), numbers.rend());
  std::cout << values.size() << ' ' << later.get() << ' ' << numbers.front() << '\n';
}
