"""The brokers and clients of a simulated cluster that replicates correctly, one step at a time.

Rules kept here: every choice comes from the Random that is passed; each step happens on one node, and its
message to another node arrives in a later step, or late, or never; committed records are lost only if
`unclean` or `overspent` allow it.
"""

from random import Random
from typing import Any

from trace_controller import Controller, Pen
from trace_replica import Answer, News, Replica
from trace_replica import epochs_of as boundaries

from histories import NODES, PROBER, READER, Line


class Cluster:
    """Three brokers, a controller, clients; `step` does one thing somewhere."""

    def __init__(self, random: Random, partitions: int, *, unclean: bool, overspent: bool) -> None:
        self.random, self.overspent = random, overspent
        self.pen = Pen(random)
        self.controller = Controller(self.pen, self.spread, unclean=unclean)
        self.words = self.controller.words
        self.lines: list[Line] = []
        self.alive = dict.fromkeys(NODES, True)
        # nodes whose sessions will end, alive or not; the first to fall silent comes first
        self.deaths: list[str] = []
        self.next_value = 1
        self.open: dict[int, list[Line]] = {}  # process -> the sends of its open op
        self.replicas = {(node, key): Replica(node=node) for node in NODES for key in range(partitions)}
        rough = 3 if unclean or overspent else 1
        self.weights = (8, 24, 10, 5, rough, rough, 2 * rough)
        for node in NODES:
            self.pen.write(node, "start", clean=False)
            self.controller.register(node)
            self.controller.unfence(node)
        for key in range(partitions):
            self.pen.moment()
            self.controller.create(key)

    # -- recording ------------------------------------------------------------------------------------------

    def say(self, key: int, replica: Replica, event: str, **besides: Any) -> None:
        """Writes a line of a replica, with its current state."""
        self.pen.write(replica.node, event, partition=key, epoch=replica.epoch, leo=replica.leo,
                       hw=replica.hw, **besides)

    def record(self, process: int, kind: str, f: str, **fields: Any) -> None:
        head = {"index": len(self.lines), "time": self.pen.time, "process": process, "type": kind, "f": f}
        self.lines.append(head | fields)

    # -- one step ------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.pen.moment()
        acts = (self.produce, self.follow, self.hear, self.alter, self.shrink, self.strike, self.controlled)
        self.random.choices(acts, self.weights)[0]()

    def spread(self, key: int, news: News) -> None:
        """Sends every replica the controller's news; some get it sooner than others."""
        for node in NODES:
            self.replicas[node, key].news.append(news)

    def some(self) -> tuple[int, Replica]:
        """A replica that is alive."""
        alive = [place for place in sorted(self.replicas) if self.alive[place[0]]]
        node, key = self.random.choice(alive or sorted(self.replicas))
        return key, self.replicas[node, key]

    def leaders(self) -> list[tuple[int, Replica]]:
        return [(key, replica) for (node, key), replica in sorted(self.replicas.items())
                if self.alive[node] and replica.leads]

    def produce(self) -> None:
        leaders = self.leaders()
        if leaders:
            self.send(*self.random.choice(leaders), self.fresh_process(), self.random.randrange(1, 4))

    def fresh_process(self) -> int:
        return 1 + max((line["process"] for line in self.lines if line["process"] < PROBER), default=0)

    def send(self, key: int, leader: Replica, process: int, count: int) -> None:
        sends = [{"partition": key, "value": self.next_value + more} for more in range(count)]
        self.next_value += count
        self.record(process, "invoke", "send", sends=sends)
        if len(leader.isr) < 2:
            self.record(process, "fail", "send", sends=sends, error="NOT_ENOUGH_REPLICAS")
            return
        first = leader.leo
        leader.log += [(leader.epoch, send["value"]) for send in sends]
        self.say(key, leader, "append", role="leader", offset=first, count=count,
                 epochs=[[leader.epoch, first]])
        self.open[process] = sends
        leader.parked.append((process, leader.leo))
        self.advance(key, leader)

    def advance(self, key: int, leader: Replica) -> None:
        """Moves the high watermark if it may move, and sends acks."""
        if leader.counted_end() > leader.hw and len(leader.isr) >= 2:
            leader.hw = leader.counted_end()
            self.say(key, leader, "hw", role="leader")
        for process, end in [one for one in leader.parked if one[1] <= leader.hw and len(leader.isr) >= 2]:
            leader.parked.remove((process, end))
            self.say(key, leader, "ack", offset=end - 1, acks="all", isr=sorted(leader.counted()))
            sends = self.open.pop(process)
            if process >= PROBER or self.random.random() < 0.95:
                acked = [{**send, "offset": end - len(sends) + place} for place, send in enumerate(sends)]
                self.record(process, "ok", "send", sends=acked)
            else:
                self.record(process, "info", "send", sends=sends, error="TIMEOUT")

    def give_up(self, leader: Replica) -> None:
        for process, _ in leader.parked:
            self.record(process, "info", "send", sends=self.open.pop(process), error="TIMEOUT")
        leader.parked.clear()

    # -- followers -----------------------------------------------------------------------------------------

    def follow(self) -> None:
        """A follower takes the answer that is under way, or fetches from its leader."""
        key, follower = self.some()
        if follower.leads or follower.leader is None or not self.alive[follower.node]:
            return
        if follower.answer is not None:
            self.take(key, follower, follower.answer)
            follower.answer = None
            return
        leader = self.replicas[follower.leader, key]
        if self.alive[leader.node] and leader.leads and leader.epoch == follower.epoch:
            self.fetch(key, leader, follower)

    def fetch(self, key: int, leader: Replica, follower: Replica) -> None:
        """At the leader: a diverging follower gets the epoch's end and no credit for its offset."""
        end = follower.parting(leader)
        request = {"follower": follower.node, "offset": follower.leo, "follower_epoch": follower.epoch}
        if end < follower.leo:
            self.say(key, leader, "fetch", **request)
            follower.answer = Answer(epoch=leader.epoch, cut=end, hw=0, records=())
            return
        hw, most = leader.hw, self.random.randrange(1, 6)
        self.say(key, leader, "fetch", **request)
        leader.ends[follower.node] = follower.leo
        follower.answer = Answer(epoch=leader.epoch, cut=None, hw=hw,
                                 records=tuple(leader.log[follower.leo:follower.leo + most]))
        leader.lives[follower.node] = self.controller.lives[follower.node]
        fit = not self.controller.fenced[follower.node] and follower.leo >= max(leader.hw, leader.start)
        if fit and leader.pending is None and follower.node not in leader.isr:
            self.propose(key, leader, {*leader.isr, follower.node})
        self.advance(key, leader)

    def take(self, key: int, follower: Replica, answer: Answer) -> None:
        """At the follower: an answer of another epoch is dropped."""
        if answer.epoch != follower.epoch:
            return
        if answer.cut is not None:
            was = follower.leo
            follower.cut(answer.cut)
            self.say(key, follower, "truncate", **{
                "from": was, "to": follower.leo, "cause": "diverged"})
            return
        first = follower.leo
        if answer.records:
            follower.log += answer.records
            epochs = [[epoch, first + at] for epoch, at in boundaries(answer.records)]
            self.say(key, follower, "append", role="follower", offset=first, count=len(answer.records),
                     epochs=epochs)
        if min(answer.hw, follower.leo) != follower.hw:
            follower.hw = min(answer.hw, follower.leo)
            self.say(key, follower, "hw", role="follower")
        if self.random.random() < 0.2:
            follower.flushed, follower.checkpoint = follower.leo, follower.hw
            self.say(key, follower, "checkpoint", what="hw", value=follower.hw)

    def hear(self) -> None:
        """A replica gets the controller's news, in order."""
        key, replica = self.some()
        if replica.news and self.alive[replica.node]:
            self.heard(key, replica, replica.news.pop(0))

    def heard(self, key: int, replica: Replica, news: News) -> None:
        if news.epoch > replica.epoch:
            self.give_up(replica)
            replica.turn(news)
            if replica.leads:
                self.say(key, replica, "become_leader", isr=list(news.isr), start=replica.leo)
                self.advance(key, replica)
            else:
                self.say(key, replica, "become_follower", leader=news.leader)
        elif news.epoch == replica.epoch and news.partition_epoch > replica.partition_epoch and replica.leads:
            replica.isr, replica.partition_epoch, replica.pending = set(news.isr), news.partition_epoch, None
            self.say(key, replica, "isr", leader=news.leader, isr=list(news.isr),
                     partition_epoch=news.partition_epoch, cause="learnt")
            self.advance(key, replica)

    # -- the ISR -------------------------------------------------------------------------------------------

    def propose(self, key: int, leader: Replica, isr: set[str]) -> None:
        leader.pending, leader.proposed = isr, dict(leader.lives)
        self.say(key, leader, "isr_proposed", isr=sorted(isr), partition_epoch=leader.partition_epoch)

    def shrink(self) -> None:
        for key, leader in self.leaders():
            slow = sorted(leader.isr - {leader.node})
            if slow and leader.pending is None and self.random.random() < 0.5:
                self.propose(key, leader, leader.isr - {self.random.choice(slow)})
                return

    def alter(self) -> None:
        """A proposal reaches the controller. If it is refused because of a member, the leader takes it
        back."""
        for key, leader in self.leaders():
            if leader.pending and (leader.epoch, leader.partition_epoch) == self.words[key].epochs:
                if self.controller.alter(key, leader.pending, leader.proposed):
                    return
                leader.pending = None

    # -- faults --------------------------------------------------------------------------------------------

    def controlled(self) -> None:
        """A session ends, a fenced broker's heartbeat arrives again, or a leadership moves for no reason."""
        back = [node for node, fenced in self.controller.fenced.items()
                if fenced and self.alive[node] and node not in self.deaths]
        if self.deaths and self.random.random() < 0.6:
            self.controller.fence(self.deaths.pop(0))
        elif back:
            self.controller.unfence(back[0])
        elif self.random.random() < 0.3:
            self.deaths.append(self.random.choice(NODES))  # it is alive, but its heartbeats are lost
        else:
            key = self.random.choice(sorted(self.words))
            word = self.words[key]
            self.controller.elect(key, [node for node in word.isr if node != word.leader])

    def strike(self) -> None:
        down = [node for node in NODES if not self.alive[node]]
        if down and self.random.random() < 0.8:
            self.start(self.random.choice(down))
        elif len(down) < 2 or self.overspent:
            node = self.random.choice([node for node in NODES if self.alive[node]] or list(NODES))
            spared = self.overspent or (not down and all(len(word.isr) == 3 for word in self.words.values()))
            self.kill(node, power=spared and self.random.random() < 0.6)

    def kill(self, node: str, *, power: bool) -> None:
        if not self.alive[node]:
            return
        self.alive[node] = False
        if node not in self.deaths:
            self.deaths.append(node)
        lost = False
        for (owner, _), replica in self.replicas.items():
            if owner == node:
                self.give_up(replica)
                kept = self.random.randrange(replica.flushed, replica.leo + 1) if power else replica.leo
                lost |= kept < replica.leo
                replica.die(kept)
        fault: Line = {"nodes": [node], "moment": {"at": "time", "time": self.pen.time}}
        loss = {"lost": True} if lost else {}
        self.record(-1, "info", "power_cut" if power else "kill", fault=fault | loss)

    def start(self, node: str) -> None:
        """The node starts; sometimes before its old session has ended."""
        if self.alive[node]:
            return
        self.alive[node] = True
        self.record(-1, "info", "start", fault={"nodes": [node]})
        self.pen.write(node, "start", clean=False)
        for (owner, key), replica in sorted(self.replicas.items()):
            if owner == node:
                self.say(key, replica, "start", clean=False)
        self.pen.moment()
        self.controller.register(node)
        self.deaths = [dead for dead in self.deaths if dead != node]
        for key in self.words:
            self.replicas[node, key].news = [self.words[key].news()]

    # -- the end -------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Starts and connects every node, until all have caught up and are in the ISR; a probe is acked; all
        logs are equal at the end."""
        for _ in range(400):
            self.pen.moment()
            if self.mend() and self.is_settled():
                break
        else:
            raise AssertionError("the imagined cluster does not settle")
        for key, word in self.words.items():
            self.pen.moment()
            self.send(key, self.replicas[str(word.leader), key], PROBER, 1)
            while not self.is_settled():
                self.quiet()
        self.final_reads()

    def mend(self) -> bool:
        self.deaths.clear()
        for node in NODES:
            self.start(node)
            if self.controller.fenced[node]:
                self.pen.moment()
                self.controller.unfence(node)
        self.quiet()
        return True

    def quiet(self) -> None:
        """Every replica gets its news and follows, every leader proposes and learns."""
        for (_, key), replica in sorted(self.replicas.items()):
            while replica.news:
                self.pen.moment()
                self.heard(key, replica, replica.news.pop(0))
            self.pen.moment()
            self.quietly_follow(key, replica)
            self.pen.moment()
            self.alter()

    def quietly_follow(self, key: int, follower: Replica) -> None:
        if follower.leads or follower.leader is None:
            return
        if follower.answer is not None:
            self.take(key, follower, follower.answer)
            follower.answer = None
            self.pen.moment()
        leader = self.replicas[follower.leader, key]
        if leader.leads and leader.epoch == follower.epoch:
            self.fetch(key, leader, follower)

    def is_settled(self) -> bool:
        return all(
            word.leader is not None and len(word.isr) == 3 and len({
                (replica.leo, replica.hw, replica.leo == replica.hw, replica.epoch, replica.pending is None)
                for (_, at), replica in self.replicas.items() if at == key}) == 1
            and self.replicas[word.leader, key].hw == self.replicas[word.leader, key].leo
            for key, word in self.words.items())

    def final_reads(self) -> None:
        self.pen.moment()
        keys = sorted(self.words)
        self.record(READER, "invoke", "assign", partitions=keys)
        self.record(READER, "ok", "assign", partitions=keys)
        for key, word in sorted(self.words.items()):
            reads = [{"partition": key, "offset": offset, "value": value}
                     for offset, (_, value) in enumerate(self.replicas[str(word.leader), key].log)]
            self.record(READER, "invoke", "poll")
            self.record(READER, "ok", "poll", reads=reads)
