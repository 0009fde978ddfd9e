"""The damages that tests plant in a healthy trace: each finding of the trace, and its near misses.

Rules kept here: a damage happens after the run's last line, in some partition, and is written as a Scene;
`plant` names all that must be found, with its class if that is not bug; nothing else may be found.
"""

from collections.abc import Callable
from random import Random

from damages import BUG, Damage, Expect
from trace_scene import Scene

from histories import RunFolder

DAMAGES: dict[str, Damage] = {}
NEAR_MISSES: dict[str, Damage] = {}
BUDGET, UNCLEAN = ("permitted", "fault budget"), ("permitted", "unclean.leader.election.enable")

Story = Callable[[Scene], bool | None]  # False: this folder does not fit


def plant(**must: tuple[str, str | None]) -> Callable[[Story], Story]:
    """Registers a story under its name, with its findings; without findings as a near miss."""

    def register(story: Story) -> Story:
        def damage(folder: RunFolder, random: Random) -> Expect | None:
            if folder.trace is None or story(Scene(folder, random)) is False:
                return None
            return Expect(must={name.replace("_", "-"): kind for name, kind in must.items()})

        damage.__name__ = story.__name__
        (DAMAGES if must else NEAR_MISSES)[story.__name__] = damage
        return story

    return register


# -- hw-regressed -------------------------------------------------------------------------------------------

@plant(hw_regressed=BUG)
def a_leaders_hw_falls(scene: Scene) -> None:
    scene.say(scene.leader, "hw", hw=scene.leo - 1, role="leader")


@plant(hw_regressed=BUG)
def a_leaders_hw_falls_unsaid(scene: Scene) -> None:
    """Only the state in another line shows it; later it is as before."""
    scene.append(scene.leader)
    scene.states[scene.leader].hw -= 1
    scene.fetch(scene.one)
    scene.copy(scene.one, scene.other)
    scene.commit()


@plant()
def a_followers_hw_falls(scene: Scene) -> None:
    """A follower's HW may fall and rise again."""
    scene.say(scene.one, "hw", hw=scene.leo - 1, role="follower")
    scene.say(scene.one, "hw", hw=scene.leo, role="follower")


@plant()
def the_next_leaders_hw_is_lower(scene: Scene) -> None:
    """The new leader had not learned the last HW."""
    scene.states[scene.one].hw -= 1
    scene.change(scene.one)
    scene.copy(*[node for node in scene.nodes if node != scene.leader])
    scene.commit()


# -- epoch-regressed ----------------------------------------------------------------------------------------

@plant(epoch_regressed=BUG)
def an_old_role_is_taken(scene: Scene) -> None:
    scene.change(scene.one)
    scene.say(scene.other, "become_follower", epoch=scene.epoch - 1, leader=scene.leader)


@plant(epoch_regressed=BUG)
def an_old_leadership_is_taken_after_a_restart(scene: Scene) -> None:
    scene.change(scene.one)
    scene.start(scene.other, scene.leo)
    scene.say(scene.other, "become_leader", epoch=scene.epoch - 1, isr=scene.isr, start=scene.leo)


@plant()
def a_role_is_taken_twice(scene: Scene) -> None:
    """Twice in one epoch, with a restart in between whose line has no epoch."""
    scene.start(scene.one, scene.leo)
    scene.say(scene.one, "become_follower", epoch=scene.epoch, leader=scene.leader)
    scene.say(scene.one, "become_follower", leader=scene.leader)


# -- two-leaders --------------------------------------------------------------------------------------------

@plant(two_leaders=BUG)
def a_second_leader_appends(scene: Scene) -> None:
    scene.append(scene.one)


@plant(two_leaders=BUG)
def a_second_leader_moves_the_hw(scene: Scene) -> None:
    scene.say(scene.one, "hw", role="leader")


@plant(two_leaders=BUG)
def a_second_leader_acks(scene: Scene) -> None:
    scene.say(scene.one, "ack", offset=scene.leo - 1, acks="all", isr=scene.isr)


@plant()
def a_second_leader_does_nothing(scene: Scene) -> None:
    scene.lead(scene.one)
    scene.say(scene.one, "fetch", follower=scene.other, offset=scene.leo, follower_epoch=scene.epoch)


@plant()
def an_old_leader_goes_on(scene: Scene) -> None:
    """It works in its own epoch while the next epoch's leader works too; no follower acknowledges."""
    old = scene.leader
    scene.elect(scene.one, isr=[scene.one, scene.other])
    scene.append(old)
    scene.lead(scene.one)
    scene.obey(scene.other)
    scene.append(scene.one)
    scene.append(old)
    scene.copy(scene.other)
    scene.commit()
    scene.ack()
    scene.say(old, "become_follower", epoch=scene.epoch, leader=scene.leader)
    scene.cut(old, scene.leo - 1)
    scene.copy(old)


# -- ack-rule -----------------------------------------------------------------------------------------------

@plant(ack_rule=BUG)
def acked_at_the_hw(scene: Scene) -> None:
    scene.append(scene.leader)
    scene.copy(scene.one, scene.other)
    scene.ack()


@plant()
def acked_by_one_at_the_hw(scene: Scene) -> None:
    """An acks=1 ack does not wait for followers."""
    scene.append(scene.leader)
    scene.ack(acks="1")


@plant(ack_rule=BUG)
def acked_below_min_insync(scene: Scene) -> None:
    """The ISR has shrunk correctly to the leader alone."""
    scene.shrink(scene.one, scene.other)
    scene.append(scene.leader)
    scene.commit()
    scene.ack()


@plant()
def acked_at_min_insync(scene: Scene) -> None:
    scene.shrink(scene.other)
    scene.append(scene.leader)
    scene.copy(scene.one)
    scene.commit()
    scene.ack()


@plant(ack_rule=BUG, candidate_incomplete=BUG)
def acked_before_a_member_has_it(scene: Scene) -> None:
    scene.append(scene.leader)
    scene.copy(scene.one)
    scene.commit()
    scene.ack()


@plant()
def acked_at_the_instant_of_the_append(scene: Scene) -> None:
    """Equal times of two nodes have no order."""
    scene.append(scene.leader)
    scene.copy(scene.one)
    scene.commit()
    scene.ack(at=scene.time)
    scene.append(scene.other, role="follower", at=scene.time)


@plant()
def acked_after_a_member_has_cut_it_again(scene: Scene) -> None:
    """A member appended it, cut it, and has it again before it can be elected."""
    scene.append(scene.leader)
    scene.copy(scene.one, scene.other)
    scene.cut(scene.other, scene.leo - 1)
    scene.commit()
    scene.ack(at=scene.time)
    scene.append(scene.other, role="follower", at=scene.time)


# -- unsafe-truncation --------------------------------------------------------------------------------------

@plant(unsafe_truncation=BUG, candidate_incomplete=BUG)
def a_member_cuts_what_is_committed(scene: Scene) -> None:
    scene.cut(scene.one, scene.leo - 1)
    scene.copy(scene.one)


@plant(unsafe_truncation=BUG)
def an_outsider_cuts_what_is_committed(scene: Scene) -> None:
    scene.shrink(scene.one)
    scene.cut(scene.one, scene.leo - min(2, scene.leo))
    scene.copy(scene.one)


@plant()
def an_outsiders_recovery_cuts_what_is_committed(scene: Scene) -> None:
    scene.shrink(scene.one)
    scene.cut(scene.one, scene.leo - 1, cause="recovery")


@plant()
def a_tail_that_nobody_has_is_cut(scene: Scene) -> None:
    """The last record of the old leader was never committed; the new leader has another record there."""
    old = scene.leader
    scene.append(old)
    scene.change(scene.one)
    scene.cut(old, scene.leo)
    scene.append(scene.one)
    scene.copy(old, *[node for node in scene.nodes if node not in (old, scene.leader)])
    scene.commit()


@plant()
def another_record_than_the_committed_is_cut(scene: Scene) -> None:
    """A record at the same offset and of another epoch, cut by a replica that never had the committed one."""
    old, rest = scene.leader, [scene.one, scene.other]
    scene.append(old)
    scene.elect(scene.one, isr=rest)
    scene.lead(scene.one)
    scene.obey(scene.other)
    scene.append(scene.one)
    scene.copy(scene.other)
    scene.commit()
    scene.obey(old)
    scene.cut(old, scene.leo - 1)


@plant()
def cut_before_it_is_committed(scene: Scene) -> None:
    scene.append(scene.leader)
    scene.copy(scene.one, scene.other)
    scene.cut(scene.one, scene.leo - 1)
    scene.copy(scene.one)
    scene.commit()


@plant()
def cut_at_the_instant_of_the_commit(scene: Scene) -> None:
    scene.append(scene.leader)
    scene.copy(scene.one, scene.other)
    scene.commit()
    scene.cut(scene.one, scene.leo - 1)
    scene.trace[-1]["time"] = scene.time = scene.time - scene.step
    scene.append(scene.one, role="follower", at=scene.time)


# -- candidate-incomplete and leader-incomplete -------------------------------------------------------------

def bounced(scene: Scene, node: str, leo: int) -> None:
    """Restarts a node with a lower LEO; the controller has it as alive."""
    scene.start(node, leo)
    scene.broker("register", node)
    scene.broker("unfence", node)


@plant(candidate_incomplete=BUG, recovery_loss=BUG)
def a_bounced_member_stays_a_member(scene: Scene) -> None:
    scene.outgrow()
    bounced(scene, scene.one, scene.leo - 1)
    scene.obey(scene.one)
    scene.copy(scene.one)


@plant(recovery_loss=BUG)
def a_bounced_member_leaves(scene: Scene) -> None:
    """Its old session had not ended; from the new registration on it is not in the ISR."""
    scene.outgrow()
    scene.start(scene.one, scene.leo - 1)
    scene.broker("register", scene.one)
    scene.word("isr", isr=[node for node in scene.isr if node != scene.one], cause="registration")
    scene.broker("unfence", scene.one)


@plant(recovery_loss=BUG)
def a_bounced_member_is_never_heard_of(scene: Scene) -> None:
    """It has registered and dies before it is unfenced; the ISR still names it for a while."""
    scene.outgrow()
    scene.start(scene.one, scene.leo - 1)
    scene.broker("register", scene.one)
    scene.start(scene.one, scene.leo - 1)


@plant(recovery_loss=BUG)
def a_fenced_member_lacks_a_record(scene: Scene) -> None:
    """It is the last of its ISR, and must not be elected."""
    scene.outgrow()
    scene.broker("fence", scene.one)
    scene.start(scene.one, scene.leo - 1)


@plant(candidate_incomplete=BUG, leader_incomplete=BUG, recovery_loss=BUG)
def a_leader_without_the_last_record(scene: Scene) -> None:
    scene.outgrow()
    bounced(scene, scene.one, scene.leo - 1)
    scene.elect(scene.one)
    scene.lead(scene.one)


@plant()
def a_leader_learns_too_late(scene: Scene) -> None:
    """It learns of its election when the next leader has committed more."""
    late, early = scene.one, scene.leader
    scene.elect(late)
    epoch = scene.epoch
    scene.elect(early, isr=[early, scene.other])
    scene.lead(early)
    scene.obey(scene.other)
    scene.append(early)
    scene.copy(scene.other)
    scene.commit()
    scene.say(late, "become_leader", epoch=epoch, isr=sorted(scene.nodes), start=scene.states[late].leo)


@plant(candidate_incomplete=UNCLEAN, leader_incomplete=UNCLEAN, recovery_loss=BUG)
def an_unclean_leader(scene: Scene) -> None:
    scene.folder.run["guarantees"]["unclean_leader_election"] = True
    led_from_outside(scene)


@plant(candidate_incomplete=BUG, leader_incomplete=BUG, unclean_election=BUG, recovery_loss=BUG)
def an_unclean_leader_whom_nobody_allowed(scene: Scene) -> None:
    scene.folder.run["guarantees"]["unclean_leader_election"] = False
    led_from_outside(scene)


def led_from_outside(scene: Scene) -> None:
    scene.outgrow()
    scene.start(scene.one, scene.leo - 1)
    scene.broker("register", scene.one)
    scene.word("isr", isr=[node for node in scene.isr if node != scene.one], cause="registration")
    scene.broker("unfence", scene.one)
    scene.broker("fence", scene.leader)
    scene.broker("fence", scene.other)
    scene.elect(scene.one, isr=[scene.one], clean=False)
    scene.lead(scene.one)


@plant(candidate_incomplete=UNCLEAN, leader_incomplete=UNCLEAN, unsafe_truncation=UNCLEAN, recovery_loss=BUG)
def an_unclean_leader_and_its_followers(scene: Scene) -> None:
    old = scene.leader
    an_unclean_leader(scene)
    scene.broker("unfence", old)
    scene.obey(old)
    scene.cut(old, scene.leo)


def power_cut(scene: Scene, *nodes: str) -> None:
    """A power cut of these nodes in which data were lost."""
    scene.time += scene.step
    line = scene.folder.add(-1, "info", "power_cut", fault={"nodes": list(nodes), "lost": True})
    scene.time = line["time"] = max(scene.time, line["time"])


@plant(candidate_incomplete=BUDGET, leader_incomplete=BUDGET)
def the_last_of_the_isr_loses_power(scene: Scene) -> None:
    last = scene.leader
    scene.shrink(scene.one, scene.other)
    power_cut(scene, last)
    bounced(scene, last, scene.leo - 1)
    scene.elect(last)
    scene.lead(last)


@plant(candidate_incomplete=BUG, leader_incomplete=BUG)
def a_struck_leader_although_others_have_it(scene: Scene) -> None:
    power_cut(scene, scene.one)
    bounced(scene, scene.one, scene.leo - 1)
    scene.elect(scene.one)
    scene.lead(scene.one)
