"""Refuses consumer groups and transactions, which this broker lacks, with errors that clients show.

Rules
1. A client that gets no response, or a retriable error, retries for a minute and reports nothing. So every
   broker says that it is the coordinator, and then refuses each request that would join a group (JoinGroup,
   ConsumerGroupHeartbeat), commit an offset (OffsetCommit) or begin a transaction (InitProducerId with an id)
   with an error that no client retries.
2. Requests that need no group work: there are no groups (ListGroups), and no offset has been committed
   (OffsetFetch); so a consumer that assigns partitions to itself begins where its reset policy says.
3. The broker logs each kind of refusal once for a client id.
"""

from collections.abc import Callable
from typing import Any

from floodmark.broker.process_log import log
from floodmark.broker.protocol import errors
from floodmark.broker.server.config import Config
from floodmark.broker.wire import api_keys
from floodmark.broker.wire.codec import NO_THROTTLE_TIME, RequestHeader, error_code, make, response_parts

GROUP_REFUSED = errors.GROUP_AUTHORIZATION_FAILED
TRANSACTION_REFUSED = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_LOGGED_MAX = 1_000  # client ids remembered
_NO_OFFSET = -1


class GroupRequests:
    """Serves the requests about groups; `serves` maps each API key to its handler."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._logged: set[tuple[str, str | None]] = set()
        self.serves: dict[int, Callable[[Any, RequestHeader], Any]] = {
            api_keys.FIND_COORDINATOR: self._find_coordinator,
            api_keys.JOIN_GROUP: self._join_group,
            api_keys.CONSUMER_GROUP_HEARTBEAT: self._consumer_group_heartbeat,
            api_keys.OFFSET_COMMIT: self._offset_commit,
            api_keys.OFFSET_FETCH: self._offset_fetch,
            api_keys.LIST_GROUPS: self._list_groups,
        }

    def refuse(self, request: str, head: RequestHeader, error: int, **besides: object) -> int:
        """Return the error, and log it the first time that this client asks."""
        if (request, head.client) not in self._logged and len(self._logged) < _LOGGED_MAX:
            self._logged.add((request, head.client))
            name = errors.error_name(error)
            log("warning", "not-served", asked=request, client=head.client, **besides, error=name)
        return error

    def _find_coordinator(self, request: Any, head: RequestHeader) -> Any:
        host, port = self._config.advertised
        cls, _ = response_parts(head.key, head.version)
        return make(
            cls, throttle_time=NO_THROTTLE_TIME, error_code=error_code(errors.NONE), error_message=None,
            node_id=self._config.node_id, host=host, port=port,
        )  # fmt: skip

    def _join_group(self, request: Any, head: RequestHeader) -> Any:
        error = self.refuse("consumer groups", head, GROUP_REFUSED, group=request.group_id)
        cls, _ = response_parts(head.key, head.version)
        return make(
            cls, throttle_time=NO_THROTTLE_TIME, error_code=error_code(error), generation_id=-1,
            protocol_type=None,
            protocol_name="" if head.version < 7 else None, leader="", skip_assignment=False, member_id="",
            members=(),
        )  # fmt: skip

    def _consumer_group_heartbeat(self, request: Any, head: RequestHeader) -> Any:
        """Refuse a member that joins by KIP-848."""
        error = self.refuse("consumer groups", head, GROUP_REFUSED, group=request.group_id)
        cls, _ = response_parts(head.key, head.version)
        return make(
            cls, throttle_time=NO_THROTTLE_TIME, error_code=error_code(error),
            error_message="there are no groups", member_id=None, member_epoch=0,
            heartbeat_interval=NO_THROTTLE_TIME, assignment=None,
        )  # fmt: skip

    def _offset_commit(self, request: Any, head: RequestHeader) -> Any:
        error = error_code(self.refuse("offset commits", head, GROUP_REFUSED, group=request.group_id))
        cls, parts = response_parts(head.key, head.version)
        topics = tuple(
            make(
                parts.OffsetCommitResponseTopic,
                name=topic.name,
                partitions=tuple(
                    make(
                        parts.OffsetCommitResponsePartition,
                        partition_index=part.partition_index,
                        error_code=error,
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return make(cls, throttle_time=NO_THROTTLE_TIME, topics=topics)

    def _offset_fetch(self, request: Any, head: RequestHeader) -> Any:
        cls, parts = response_parts(head.key, head.version)
        topics = tuple(
            make(
                parts.OffsetFetchResponseTopic,
                name=topic.name,
                partitions=tuple(
                    make(
                        parts.OffsetFetchResponsePartition,
                        partition_index=index,
                        committed_offset=_NO_OFFSET,
                        committed_leader_epoch=-1,
                        metadata="",
                        error_code=error_code(errors.NONE),
                    )
                    for index in topic.partition_indexes
                ),
            )
            for topic in request.topics or ()
        )
        return make(cls, throttle_time=NO_THROTTLE_TIME, error_code=error_code(errors.NONE), topics=topics)

    def _list_groups(self, request: Any, head: RequestHeader) -> Any:
        cls, _ = response_parts(head.key, head.version)
        return make(cls, throttle_time=NO_THROTTLE_TIME, error_code=error_code(errors.NONE), groups=())
