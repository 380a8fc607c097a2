#include "cli/model_arguments.hpp"

#include <fmt/format.h>

#include "model/profile_library.hpp"

namespace ebb::cli {

namespace {

constexpr uint64_t k_many = 1'000'000;

constexpr const char *k_dimension_options[] = {"--micro-batch",      "--sequence",       "--micro-batches",
                                               "--shards",           "--expert-shards",  "--pipeline-stages",
                                               "--pipeline-chunks",  "--pipeline-stage", "--format",
                                               "--attention-format", "--gathers",        "--all-to-all"};

std::string joined_names(const std::vector<std::string_view> &names) {
    std::string all;
    for (const std::string_view name : names) {
        all += (all.empty() ? "" : ", ") + std::string(name);
    }
    return all;
}

void declare_training(command_line &line, step_settings &s) {
    line.group("Training (of a model by its dimensions)");
    line.count("--micro-batch", s.micro_batch, 1, k_many, "sequences per micro-batch");
    line.count("--sequence", s.sequence, 1, 1000 * k_many, "tokens per sequence");
    line.count("--micro-batches", s.micro_batches, 1, k_many, "per optimizer step");
    line.count("--shards", s.shards, 1, k_many, "devices that share parameters and optimizer state (FSDP)");
    line.count("--expert-shards", s.expert_shards, 1, k_many, "devices that share the routed experts");
    line.count("--pipeline-stages", s.pipeline_stages, 1, k_many, "devices in a pipeline");
    line.count("--pipeline-chunks", s.pipeline_chunks, 1, k_many, "parts of the model per device: interleaved 1F1B");
    line.count("--pipeline-stage", s.pipeline_stage, 0, k_many, "which device of the pipeline the step is of");
    const std::vector<std::pair<const char *, number_format>> formats{
        {"bf16", number_format::bf16}, {"fp8", number_format::fp8}, {"fp4", number_format::fp4}};
    line.word("--format", s.gemm_format, formats, "of the operands of matrix products");
    line.word("--attention-format", s.attention_format, formats, "of attention's operands");
    const std::vector<std::pair<const char *, collective_overlap>> overlaps{
        {"exposed", collective_overlap::exposed},
        {"own-iteration", collective_overlap::own_iteration},
        {"across-iterations", collective_overlap::across_iterations}};
    line.word("--gathers", s.gathers, overlaps,
              "where FSDP's collectives run: compute waits for them, beside their own layer, beside the next one");
    line.word("--all-to-all", s.all_to_all, overlaps, "the same for what experts exchange");
}

}  // namespace

void model_arguments::declare(command_line &line, const std::string &policy_meaning) {
    line.group("Model and machine");
    line.text("--machine", machine, "NAME|FILE",
              fmt::format("{}, or a file as `ebb machines NAME --json` prints it", joined_names(machine_names())));
    line.text("--model", model, "NAME|FILE",
              fmt::format("required: {}, or a file: dimensions as `ebb models NAME --json` prints them, or a recorded "
                          "step as ebb_record_export writes it",
                          joined_names(model_names())));
    declare_training(line, settings);
    line.group("What is decided, and within what");
    line.text(
        "--policy", policy, "POLICY",
        fmt::format("automatic; or the save set: keep, offload, recompute, or a list of MaxText's names and values "
                    "(remat, device, offload). {}",
                    policy_meaning));
    line.bytes("--device-bytes", device_bytes, "device memory for all of the step [the machine's]");
    line.bytes("--host-bytes", host_bytes, "pinned host memory [the device's share of the machine's]");
    line.word(
        "--memory", memory, {{"one_pool", memory_mode::one_pool}, {"staging", memory_mode::staging}},
        "reloaded tensors share the pool of all others (the framework's allocator), or have a block of their own");
    line.bytes("--chunk-bytes", chunk_bytes,
               "copies are made in pieces of that size [where the link reaches its rate]");
    line.flag("--alone", alone, "no other device of the host copies meanwhile");
}

status model_arguments::check(const command_line &line) {
    if (model.empty()) {
        return {code::invalid_argument,
                fmt::format("--model is missing; known: {}; or the path of a file", joined_names(model_names()))};
    }
    for (const char *name : k_dimension_options) {
        if (given_dimension.empty() && line.was_given(name)) {
            given_dimension = name;
        }
    }
    return {};
}

}  // namespace ebb::cli
