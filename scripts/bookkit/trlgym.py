"""The gym and TinyAgent as TRL's GRPOTrainer takes them: the same policy, weights, tokens, episodes and update.

GRPOTrainer plays the episodes in its own loop (`environment_factory`), with transformers' `generate`, on the CPU. What
stays different: it feeds the whole context again in every turn, pads all rows to the longest, updates on groups of
equal rewards too, adds 1e-4 to a deviation, computes log-probabilities in float32 whatever the weights are, and does
not snap weights. Needs the extra `peers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import agentrl as arl

datasets: Any = import_module("datasets")
tokenizers: Any = import_module("tokenizers")
transformers: Any = import_module("transformers")
trl: Any = import_module("trl")

SUBMIT = "<call> submit </call>"
TURNS = 5  # of the gym
# What a text is to GRPOTrainer: a call of the one tool there is, `say`, unless it is the one that ends an episode.
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor_pattern": "(?s).+",
    "fields": {
        "tool_calls": {
            "open_pattern": rf"^(?!{SUBMIT}\Z)",
            "content": "text",
            "content_args": {"strip": False},
            "repeats": True,
            "transform": {"type": "function", "function": {"name": "say", "arguments": {"text": "{content}"}}},
        },
        "content": {"content": "text"},
    },
}
# GRPOTrainer renders prompts and observations with it; what the policy wrote stays the ids that were sampled. It wants
# to see a call's name and arguments in the text, though it never reads them there.
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'tool' %}<obs>{{ m.content }}</obs>{% else %}{{ m.content }}{% endif %}"
    "{% for call in m.tool_calls or [] %}{% for name, value in call.function.arguments.items() %}"
    "{{ call.function.name }} {{ name }} {{ value }}{% endfor %}{% endfor %}{% endfor %}"
)


def trl_tokenizer(tokenizer: arl.TinyTokenizer) -> Any:
    """Return a tokenizer of transformers with the same ids for every text that the gym's environments say.

    Words that are no token of their own are not spelled, as TinyAgent's are: none occurs in the gym.
    """
    first = len(tokenizer.control)
    halves = {f"<0x{half:x}>": first + half for half in range(16)}
    words = {**tokenizer.control, **halves, **tokenizer.piece}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<0x0>"))
    pattern = tokenizers.Regex(arl.PIECE_PATTERN.pattern)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(pattern, "isolated")
    made.decoder = tokenizers.decoders.Fuse()
    exact = {"normalized": False, "special": True}
    made.add_special_tokens([tokenizers.AddedToken(name, **exact) for name in tokenizer.control])
    names = {"bos_token": "<bos>", "pad_token": "<bos>", "eos_token": " </call>", "unk_token": "<0x0>"}
    found = transformers.PreTrainedTokenizerFast(tokenizer_object=made, padding_side="left", **names)
    found.chat_template, found.response_template = TEMPLATE, RESPONSE
    return found


class _UnitRms(torch.nn.Module):
    """TinyAgent's norm, which has no weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return arl.unit_rms(x)


def trl_model(agent: arl.TinyAgent, end: int) -> Any:
    """Return transformers' GPT-2 made to compute what the agent does, with its weights.

    Its norms are the agent's, its activation is a ReLU, its biases stay 0. `end` is the id that ends a turn.
    """
    sizes = agent.config
    config = transformers.GPT2Config(
        vocab_size=sizes.vocab_size,
        n_embd=sizes.width,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        n_inner=sizes.mlp_ratio * sizes.width,
        n_positions=sizes.max_positions,
        activation_function="relu",
        **{"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": False},
        **{"bos_token_id": 0, "eos_token_id": end, "pad_token_id": 0},
    )
    model = transformers.GPT2LMHeadModel(config).to(agent.head.dtype)
    _take_weights(model, agent)
    return model


@torch.no_grad()
def _take_weights(model: Any, agent: Any) -> None:
    """Give a GPT-2 the agent's weights and norms."""
    trunk = model.transformer
    trunk.ln_f = _UnitRms()
    pairs = [(trunk.wte, agent.tokens), (trunk.wpe, agent.positions), (model.lm_head, agent.head.T)]
    for block, own in zip(trunk.h, agent.blocks, strict=True):
        block.ln_1, block.ln_2 = _UnitRms(), _UnitRms()
        layers = [block.attn.c_attn, block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj]
        pairs += zip(layers, [own.attention.qkv, own.attention.out, own.up, own.down], strict=True)
        for layer in layers:
            layer.bias.zero_().requires_grad_(False)
    for layer, weights in pairs:
        layer.weight.copy_(weights)


def trl_environment(tasks: Sequence[arl.BugFixTask]) -> type:
    """Return the class of the environments that GRPOTrainer makes: a row of its data names a task's id."""
    by_id = {task.id: task for task in tasks}

    class Gym:
        """One task of the gym."""

        def reset(self, task: int, **_: Any) -> str:
            """Return the prompt of a new episode."""
            self._env = arl.gym_env(by_id[task])
            return self._env.reset()

        def say(self, text: str) -> str:
            """Send a message.

            Args:
                text: The whole message.
            """
            whole = text if text.endswith(" </call>") else text + " (cut off)"  # as `rollout` does
            return self._env.step(whole).observation

        def _finish(self, messages: list[dict[str, Any]]) -> float:
            """Return an episode's reward, after its last message, which the loop has not sent."""
            said = [message for message in messages if message["role"] == "assistant"]
            if len(said) == self._env.turns:  # the answer to the last one did not fit
                return 0.0
            calls = said[-1].get("tool_calls")
            text = calls[0]["function"]["arguments"]["text"] if calls else SUBMIT
            return self._env.step(text if text.endswith(" </call>") else text + " (cut off)").reward

    return Gym


Sampled = Callable[[list[float], int], None]


def _written(messages: list[dict[str, Any]], ids: list[int], tokenizer: arl.TinyTokenizer) -> int:
    """Return how many of the ids after a prompt the policy wrote: all but the observations and their two controls."""
    return len(ids) - sum(len(tokenizer.encode(one["content"])) + 2 for one in messages if one["role"] == "tool")


def _rewards(tokenizer: arl.TinyTokenizer, sampled: Sampled) -> Callable[..., list[float]]:
    """Return a reward function that tells `sampled` the rewards and how many tokens the policy wrote."""

    def reward(
        environments: list[Any], completions: list[Any], completion_ids: list[list[int]], **_: Any
    ) -> list[float]:
        lengths = [_written(*one, tokenizer) for one in zip(completions, completion_ids, strict=True)]
        found = [one._finish(messages) for one, messages in zip(environments, completions, strict=True)]
        sampled(found, sum(lengths))
        return found

    return reward


# What GRPOTrainer is told whatever the configuration: how GRPO is called in it, Adam's decay rates, a CPU, no output.
FIXED = {
    "loss_type": "grpo", "scale_rewards": "group", "beta": 0.0,
    "adam_beta1": 0.9, "adam_beta2": 0.95, "lr_scheduler_type": "constant",
    "top_p": 1.0, "top_k": 0, "max_tool_calling_iterations": TURNS - 1,
    "gradient_accumulation_steps": 1, "gradient_checkpointing": False,
    "use_cpu": True, "bf16": False, "dataloader_pin_memory": False,
    "report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True,
}  # fmt: skip
GRPO = {"loss": "ppo", "advantage": "group-std", "aggregation": "seq-mean-token-mean"}
GRPO |= {"tasks_per_iteration": None, "refills": 0, "overlong": None, "max_kl": None}


def trl_settings(config: arl.TrainConfig, episodes: int, room: int, folder: Path) -> Any:
    """Return GRPOTrainer's settings for `episodes` an iteration, with `room` tokens after a prompt.

    ValueError, naming the field, for a configuration that is not GRPO's but for its numbers.
    """
    for name, value in GRPO.items():
        if getattr(config, name) != value:
            raise ValueError(f"{name} is {getattr(config, name)!r}; GRPOTrainer is told of {value!r} only")
    return trl.GRPOConfig(
        output_dir=str(folder),
        seed=config.seed,
        max_steps=config.iterations * config.epochs * config.minibatches,
        per_device_train_batch_size=episodes // config.minibatches,
        steps_per_generation=config.minibatches,
        num_iterations=config.epochs,
        num_generations=config.attempts,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm or 0.0,
        epsilon=config.clip_low,
        epsilon_high=config.clip_high,
        delta=config.dual_clip,
        temperature=config.temperature,
        max_completion_length=room,
        generation_kwargs={"max_new_tokens": config.max_turn_tokens},
        **FIXED,
    )


def trl_trainer(
    agent: arl.TinyAgent,
    tokenizer: arl.TinyTokenizer,
    tasks: Sequence[arl.BugFixTask],
    config: arl.TrainConfig,
    folder: Path,
    sampled: Sampled,
) -> Any:
    """Return a GRPOTrainer that does what `arl.train` does to a copy of the agent, in the agent's precision.

    `sampled` is called in each iteration with the rewards and the number of tokens the policy wrote, when they are
    known. Settings are what was fastest here: no gradient accumulation, PyTorch's fused attention.
    """
    transformers.utils.logging.set_verbosity_error()
    model = trl_model(agent, tokenizer.control[" </call>"])
    columns = {"prompt": [[{"role": "user", "content": ""}]] * len(tasks), "task": [task.id for task in tasks]}
    room = agent.config.max_positions - config.max_turn_tokens - len(tokenizer.encode(arl.SHORT_PROMPT)) - 1
    made = trl.GRPOTrainer(
        model=model,
        args=trl_settings(config, len(tasks) * config.attempts, room, folder),
        reward_funcs=_rewards(tokenizer, sampled),
        train_dataset=datasets.Dataset.from_dict(columns),
        processing_class=trl_tokenizer(tokenizer),
        environment_factory=trl_environment(tasks),
    )
    made.remove_callback(transformers.PrinterCallback)
    return made
