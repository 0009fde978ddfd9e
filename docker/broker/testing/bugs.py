"""Names the known-bad rules: each turns the one switch (or pair) of protocol/rules.py that is wrong in it.

A comment names the ticket of the bug in Kafka's history. They exist so that every check can be seen to catch
a broker with the very bug that it looks for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from floodmark.broker.protocol.rules import GENERATIONS, SWITCHES, Rules

BUGS: Mapping[str, Mapping[str, object]] = {
    # truncation
    # KAFKA-1211: the high watermark instead of the epoch step
    "trunc_hw": {"truncates_to_hw": True, "truncates_by_epoch": False, "truncates_by_log_end": True},
    "leader_trunc": {"leader_keeps_log": False},
    "no_epoch_on_elect": {"epoch_at_election": False},  # KAFKA-7415
    "keep_epoch_tail": {"cuts_epoch_tail": False},  # KAFKA-10706
    "forget_epoch": {"recalls_epochs": False},  # the leader-epoch-checkpoint is not read at a restart
    # KAFKA-7164; to be seen where a follower asks before it fetches (two-phase)
    "skip_same_leader": {"follows_same_leader_anew": False, "sees_missed_epochs": False},
    "epoch_v0": {"answers_with_epoch": False},  # KAFKA-6361: the start of the first larger epoch
    "append_no_base_check": {"checks_base_offsets": False},  # KAFKA-3919
    "hw_before_trunc": {"truncates_before_hw": False},  # KAFKA-14704
    # disk
    "ckpt_drops_partition": {"checkpoints_every_partition": False},  # KAFKA-1647
    "recover_no_crc": {"recovery_checks_batches": False},
    "recover_drop_segment": {"recovery_keeps_segments": False},
    "recover_drop_last_batch": {"recovery_keeps_last_batch": False},
    "epochfile_not_rebuilt": {"recovery_mends_epochs": False},
    # fencing
    "fetch_no_epoch_fence": {"fences_followers": False},  # KAFKA-6880
    "epoch_req_unfenced": {"fences_epoch_requests": False},  # in two-phase
    # a fetch can only be credited if it is not refused
    "hw_any_epoch": {"credits_this_epoch_only": False, "fences_followers": False},
    "resp_no_epoch_check": {"answers_need_epoch": False},  # KAFKA-18991
    "la_no_broker_epoch": {"control_needs_broker_epoch": False},  # before KIP-380
    # high watermark and acks
    "ack_on_append": {"ack_rule": "append"},
    "ack_min_insync": {"ack_rule": "min-insync-copies"},
    "credit_on_send": {"credits_on_send": True},
    "credit_diverging": {"credits_diverging": True},  # KAFKA-13141
    "hw_noclamp": {"clamps_follower_hw": False},
    "hw_eq_leo": {"follower_hw_from_leader": False},
    # KAFKA-4485 done wrong; the leader does no harm: its own invariant ends it
    "hw_falls": {"hw_only_rises": False},
    "no_minisr_recheck": {"hw_needs_min_insync": False, "rechecks_min_insync": False},
    "parked_survives_demotion": {"fails_parked_on_demotion": False},
    # ISR
    "hw_committed_isr": {"counts_pending_expand": False},  # before KIP-497
    "shrink_optimistic": {"adopts_unconfirmed_shrink": True},
    "cas_fail_keeps_new": {"takes_refusal_for_success": True},
    "revert_on_unknown": {"keeps_pending_on_refusal": False},
    "expand_no_hw": {"expand_needs_hw": False, "expand_needs_leso": False},
    "no_leso": {"expand_needs_leso": False},  # KAFKA-7128
    # clients
    "read_to_leo": {"consumers_below_hw": False},
    "listoffsets_no_guard": {"guards_list_offsets": False},  # KAFKA-2334
    "listoffsets_leo": {"list_offsets_ends_at_hw": False},
    "oor_above_hw": {"out_of_range_above_leo_only": False},
    "seq_gap_ok": {"checks_sequences": False},
    "producer_state_leader_only": {"recovers_producers": False},
    # controller
    "alter_no_cas": {"alter_compares_epochs": False},
    "alter_no_fence": {"alter_refuses_fenced": False},
    "no_broker_epoch": {"checks_broker_epochs": False},  # before KIP-903
    "no_epoch_bump_on_bounce": {"bounce_is_a_failure": False, "leads_an_epoch_once": False},  # KAFKA-1120
    "no_epoch_bump": {"election_bumps_epoch": False, "leads_an_epoch_once": False},
    "unclean_by_default": {"elects_from_isr": False},
    "elect_fenced": {"elects_unfenced": False},
    "stale_isr_batch": {"expires_one_by_one": False},  # KAFKA-13173
}


def rules_for(name: str, bugs: Sequence[str] = (), switches: Sequence[str] = ()) -> Rules:
    """The rules of a generation with the named bugs and switches; ValueError lists what would be valid."""
    if name not in GENERATIONS:
        raise ValueError(f"no rule generation {name!r}; there are: {', '.join(sorted(GENERATIONS))}")
    rules = GENERATIONS[name]
    for bug in bugs:
        if bug not in BUGS:
            raise ValueError(f"no bug {bug!r}; there are: {', '.join(sorted(BUGS))}")
        changes: dict[str, Any] = dict(BUGS[bug])
        rules = replace(rules, bugs=(*rules.bugs, bug), **changes)
    for switch in switches:
        if switch not in SWITCHES:
            raise ValueError(f"no switch {switch!r}; there are: {', '.join(sorted(SWITCHES))}")
        changes = dict(SWITCHES[switch])
        rules = replace(rules, switches=(*rules.switches, switch), **changes)
    return rules
