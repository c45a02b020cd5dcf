"""All keys in Redis: what each holds and when it is removed.

| key after the prefix | type   | holds                                     | removed                                |
| -------------------- | ------ | ----------------------------------------- | -------------------------------------- |
| session:<sid>        | hash   | the fields of SessionRecord               | deadline + result TTL, then result TTL |
| live:<node>          | set    | sids that are not ended or lost           | emptied as sessions end                |
| nodes                | set    | every node                                | once dead with nothing left            |
| node:<node>          | string | heartbeat, NodeRecord as JSON             | the node's TTL after the last one      |
| placed               | hash   | node -> sessions sent there since its     | a field at the node's next heartbeat   |
|                      |        | last heartbeat                            |                                        |
| images:<node>        | set    | `<kind>:<image>` that it reported         | 7 days after it was reported           |
| holders:<kind>:<img> | set    | nodes with the image present or prepared  | 7 days after the last report           |
| wishes:<node>        | list   | instance ids announced to it              | once it takes them, else after four    |
|                      |        |                                           | times a node's TTL                     |
| drain:<node>         | string | set if it was asked to drain              | when it is empty or restarts           |
| gradings:<node>      | stream | sids whose grading is not done            | each once its verdict is in SQL        |
| submitted:<sid>      | string | set if its grading is in a stream         | with it, else 10 minutes later         |
| boots                | hash   | node -> id of its current boot            | as the node                            |
| lock:<sid>           | string | token of the lease's holder               | lease, renewed while held              |
| inflight:<sid>       | string | InFlight as JSON                          | with the session; at its end           |
| journal:<sid>        | list   | ActionRecord as JSON, seq 1 first         | with the session; ended: 1 hour        |
| replies:<sid>        | hash   | idempotency key -> seq                    | with the journal                       |
| pending:<node>       | stream | ActionRecord as JSON, not in SQL yet      | each once SQL has it                   |
| rejected:<node>      | list   | entries that SQL rejects                  | 7 days after the last                  |
| undo:<sid>           | list   | `<id>:<path digest>:<bytes>`, newest last | with the session; at its end           |
| undotext:<sid>       | hash   | id -> zlib of the text before an edit;    | with the session; at its end           |
|                      |        | `container`                               |                                        |
| imageuse:<node>      | hash   | image name -> time of last use            | each with its image                    |
| box:<sid>            | string | BoxRecord as JSON                         | the session's deadline plus            |
|                      |        |                                           | the result TTL                         |
| boxtoken:<digest>    | string | sid of the box with this access token     | with the box                           |
| boxruns:<sid>        | hash   | process id -> a long-running command      | result TTL after the last start        |
| boxkey:<digest>      | string | sid of the box that a create with this    | 10 minutes                             |
|                      |        | idempotency key made                      |                                        |
| runowner:<run>       | string | name of the API key that owns the run     | 30 days after it was claimed           |
| runleases            | hash   | run -> end of its lease, as JSON          | a field 2 days after that              |
| start:<digest>       | string | sid that a start with this idempotency    | 15 minutes                             |
|                      |        | key returned; "+" before it: repeatedly   |                                        |
| ends:<node>          | list   | sids of its sessions to be ended          | once it takes them, else 10 minutes    |
| boxcmd:<sid>:<id>    | string | set once the command was started          | when the box's time is over            |
| logout:<digest>      | string | set once this login to the pages ended    | when the login's time is over          |
| meter:<name>         | string | last reading of a container's or a        | two windows of the quotas after the    |
|                      |        | grading's meter, in seconds               | last reading                           |
| written:<node>       | string | set by a check that Redis takes writes     | a minute later                         |
| used:<kind>:<digest> | hash   | slice of the window -> seconds that the   | a window after the last use            |
|                      |        | account used in it                        |                                        |

Scripts build `live:<node>` from the session's own node field, so this needs one Redis (or one primary with
replicas), not a Redis Cluster.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names under one prefix; tests use prefixes of their own."""

    prefix: str = "sandbox:"

    def session(self, sid: str) -> str:
        """The session's record."""
        return f"{self.prefix}session:{sid}"

    def live(self, node: str) -> str:
        """The node's sessions that are not ended or lost."""
        return f"{self.prefix}live:{node}"

    @property
    def nodes(self) -> str:
        """All nodes."""
        return f"{self.prefix}nodes"

    def node(self, node: str) -> str:
        """The node's heartbeat."""
        return f"{self.prefix}node:{node}"

    def name(self, node: str) -> str:
        """Place of the server that starts as this node, until its first heartbeat."""
        return f"{self.prefix}name:{node}"

    @property
    def placements(self) -> str:
        """Sessions sent to each node since its last heartbeat."""
        return f"{self.prefix}placed"

    def images(self, node: str) -> str:
        """Images that the node has reported."""
        return f"{self.prefix}images:{node}"

    def holders(self, image: str) -> str:
        """The nodes that have `<kind>:<image>`."""
        return f"{self.prefix}holders:{image}"

    def wishes(self, node: str) -> str:
        """Instances announced to the node."""
        return f"{self.prefix}wishes:{node}"

    def drain(self, node: str) -> str:
        """Set if the node was asked to drain."""
        return f"{self.prefix}drain:{node}"

    @property
    def boots(self) -> str:
        """Each node's current boot."""
        return f"{self.prefix}boots"

    def lock(self, sid: str) -> str:
        """The lease."""
        return f"{self.prefix}lock:{sid}"

    def in_flight(self, sid: str) -> str:
        """The action that began and is not acknowledged."""
        return f"{self.prefix}inflight:{sid}"

    def journal(self, sid: str) -> str:
        """The acknowledged actions."""
        return f"{self.prefix}journal:{sid}"

    def replies(self, sid: str) -> str:
        """Idempotency key -> action."""
        return f"{self.prefix}replies:{sid}"

    def pending(self, node: str) -> str:
        """Acknowledged actions on their way to SQL."""
        return f"{self.prefix}pending:{node}"

    def rejected(self, node: str) -> str:
        """Acknowledged actions that SQL rejects."""
        return f"{self.prefix}rejected:{node}"

    def undo(self, sid: str) -> str:
        """Order of the texts in the editor's undo stacks."""
        return f"{self.prefix}undo:{sid}"

    def undo_text(self, sid: str) -> str:
        """The texts in the editor's undo stacks."""
        return f"{self.prefix}undotext:{sid}"

    def image_uses(self, node: str) -> str:
        """Time of last use of the node's images."""
        return f"{self.prefix}imageuse:{node}"

    def box(self, sid: str) -> str:
        """The box's record."""
        return f"{self.prefix}box:{sid}"

    def box_token(self, digest: str) -> str:
        """The box that an access token opens."""
        return f"{self.prefix}boxtoken:{digest}"

    def box_runs(self, sid: str) -> str:
        """Long-running commands of the box."""
        return f"{self.prefix}boxruns:{sid}"

    def box_key(self, digest: str) -> str:
        """The box made by a create with an idempotency key."""
        return f"{self.prefix}boxkey:{digest}"

    def box_command(self, sid: str, command: str) -> str:
        """Set once the command was started in the box."""
        return f"{self.prefix}boxcmd:{sid}:{command}"

    def run_owner(self, run: str) -> str:
        """The owner of the run."""
        return f"{self.prefix}runowner:{run}"

    @property
    def run_leases(self) -> str:
        """The leases of runs."""
        return f"{self.prefix}runleases"

    def start(self, digest: str) -> str:
        """The session returned for a start with an idempotency key."""
        return f"{self.prefix}start:{digest}"

    def ends(self, node: str) -> str:
        """Sessions of the node to be ended."""
        return f"{self.prefix}ends:{node}"

    def written(self, node: str) -> str:
        """What a check writes."""
        return f"{self.prefix}written:{node}"

    def logout(self, digest: str) -> str:
        """Set once the login ended."""
        return f"{self.prefix}logout:{digest}"

    def meter(self, name: str) -> str:
        """The last reading of a meter."""
        return f"{self.prefix}meter:{name}"

    def used(self, kind: str, digest: str) -> str:
        """The amounts that an account used."""
        return f"{self.prefix}used:{kind}:{digest}"

    def gradings(self, node: str) -> str:
        """The stream of gradings that go to this node first."""
        return f"{self.prefix}gradings:{node}"

    def submitted(self, sid: str) -> str:
        """Set while the session's grading is in a stream."""
        return f"{self.prefix}submitted:{sid}"

    def graded(self, sid: str) -> str:
        """Channel: announces that the session's verdict is in SQL."""
        return f"{self.prefix}graded:{sid}"

    def awaited(self, node: str) -> str:
        """Channel: sids whose verdict somebody on another node is waiting for."""
        return f"{self.prefix}awaited:{node}"
