// Reading JSON that a person may have written: what is wrong is named with its path inside the file
// (/links/d2h/latency_ns), the value that is there and what is allowed.
//
// The first failure is kept by the file and everything read after it is harmless (zero, empty, false), so that a
// reader reads straight on and asks once at its end:
//
//   json_file file("my.json", text);
//   json_object top = file.root().object();
//   const double rate = top.field("rate").number(k_above_zero);
//   top.end();                 // fields that nobody asked for are errors
//   EBB_TRY(file.outcome());
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace ebb {

class json_file;
class json_object;

struct number_limits {
    double low = 0;
    bool low_allowed = true;
    double high = std::numeric_limits<double>::infinity();
};
constexpr number_limits k_not_negative{};
constexpr number_limits k_above_zero{0, false};
constexpr number_limits k_fraction{0, true, 1};
constexpr number_limits k_fraction_above_zero{0, false, 1};

// A value and where it is. It refers into its file.
class json_value {
public:
    json_value(json_file &file, const nlohmann::ordered_json &value, std::string path)
        : file_(&file), value_(&value), path_(std::move(path)) {}

    [[nodiscard]] json_object object() const;
    // Of an array; 0 and an error when it is none.
    [[nodiscard]] size_t size(std::string_view of_what) const;
    [[nodiscard]] json_value item(size_t index) const;

    [[nodiscard]] double number(const number_limits &limits = k_not_negative) const;
    [[nodiscard]] uint64_t count(uint64_t low = 0, uint64_t high = ~uint64_t{0}) const;
    [[nodiscard]] uint32_t index(size_t end, std::string_view of_what) const;  // below end
    [[nodiscard]] bool boolean() const;
    [[nodiscard]] std::string text() const;
    // Which of the words it is.
    [[nodiscard]] size_t word(std::initializer_list<std::string_view> words) const;
    [[nodiscard]] bool is_null() const noexcept { return value_->is_null(); }

    [[nodiscard]] const std::string &path() const noexcept { return path_; }
    // The value is not one of those that are allowed here.
    void refuse(std::string_view allowed) const;
    // Something else is wrong with it.
    void fail(std::string_view why) const;

private:
    json_file *file_;
    const nlohmann::ordered_json *value_;
    std::string path_;
};

class json_object {
public:
    json_object(json_file &file, const nlohmann::ordered_json &value, std::string path)
        : file_(&file), value_(&value), path_(std::move(path)) {}

    [[nodiscard]] json_value field(std::string_view name);
    [[nodiscard]] std::optional<json_value> optional_field(std::string_view name);
    [[nodiscard]] std::string text(std::string_view name) { return field(name).text(); }
    [[nodiscard]] double number(std::string_view name, const number_limits &limits = k_not_negative) {
        return field(name).number(limits);
    }
    [[nodiscard]] uint64_t count(std::string_view name, uint64_t low = 0, uint64_t high = ~uint64_t{0}) {
        return field(name).count(low, high);
    }
    // Fields that were not asked for are errors, with the nearest name that was.
    void end();

private:
    [[nodiscard]] const nlohmann::ordered_json *find(std::string_view name);

    json_file *file_;
    const nlohmann::ordered_json *value_;
    std::string path_;
    std::vector<std::string> asked_;
};

class json_file {
public:
    // `called` is how messages name it.
    json_file(std::string called, std::string_view text);
    json_file(const json_file &) = delete;
    json_file &operator=(const json_file &) = delete;

    [[nodiscard]] json_value root() { return {*this, value_, ""}; }
    [[nodiscard]] bool failed() const noexcept { return !outcome_.ok(); }
    [[nodiscard]] const status &outcome() const noexcept { return outcome_; }
    void fail(const std::string &path, std::string_view why);

private:
    void parse(std::string_view text);

    std::string called_;
    nlohmann::ordered_json value_;
    status outcome_;
};

}  // namespace ebb
