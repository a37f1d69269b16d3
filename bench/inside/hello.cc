#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
int main() {
  std::map<std::string, std::vector<int>> found{{"ready", {2, 1}}};
  for (auto& [word, numbers] : found) { std::sort(numbers.begin(), numbers.end()); std::cout << word << " " << numbers[0] << "\n"; }
}
