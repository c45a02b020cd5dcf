"""Every key in Redis, what it holds and how long.

| key after the prefix | type   | holds                                     | goes                                   |
| -------------------- | ------ | ----------------------------------------- | -------------------------------------- |
| session:<sid>        | hash   | the fields of SessionRecord               | deadline + result TTL, then result TTL |
| live:<node>          | set    | its sids neither ended nor lost           | emptied as sessions end                |
| nodes                | set    | every node                                | once it is dead and nothing is left    |
| node:<node>          | string | its heartbeat, NodeRecord as JSON         | its time to live after the last one    |
| placed               | hash   | node -> sessions sent there since its     | a field at the node's next heartbeat   |
|                      |        | last heartbeat                            |                                        |
| images:<node>        | set    | `<kind>:<image>` that it told             | 7 days after it was told               |
| holders:<kind>:<img> | set    | nodes with the image present or prepared  | 7 days after the last was told         |
| wishes:<node>        | list   | instance ids announced to it              | once it takes them, else four times    |
|                      |        |                                           | a node's time to live                  |
| drain:<node>         | string | it was asked to drain                     | when it is empty, or starts anew       |
| gradings:<node>      | stream | sids whose grading is not done            | each once its verdict is in SQL        |
| submitted:<sid>      | string | its grading is in one of those streams    | with it, else 10 minutes later         |
| boots                | hash   | node -> id of its present boot            | as the node                            |
| lock:<sid>           | string | token of the lease's holder               | lease, renewed while held              |
| inflight:<sid>       | string | InFlight as JSON                          | as the session; at its end             |
| journal:<sid>        | list   | ActionRecord as JSON, seq 1 first         | as the session; ended: 1 hour          |
| replies:<sid>        | hash   | idempotency key -> seq                    | as the journal                         |
| pending:<node>       | stream | ActionRecord as JSON that SQL has not got | each once SQL has it                   |
| rejected:<node>      | list   | entries that SQL refuses                  | 7 days after the last                  |
| undo:<sid>           | list   | `<id>:<path digest>:<bytes>`, newest last | as the session; at its end             |
| undotext:<sid>       | hash   | id -> zlib of the text before an edit     | as the session; at its end             |
| imageuse:<node>      | hash   | image name -> when it was used last       | each with its image                    |
| box:<sid>            | string | BoxRecord as JSON                         | as the session's deadline, and later   |
|                      |        |                                           | by the result TTL                      |
| boxtoken:<digest>    | string | sid of the box with this access token     | with it                                |
| boxruns:<sid>        | hash   | process id -> a command that runs long    | result TTL after the last one began    |
| boxkey:<digest>      | string | sid of the box that a create with this    | 10 minutes                             |
|                      |        | idempotency key made                      |                                        |
| runowner:<run>       | string | name of the API key that the run is of    | 30 days after it was claimed           |
| runleases            | hash   | run -> until when it lives, as JSON       | a field 2 days after that              |
| start:<digest>       | string | sid that a start with this idempotency    | 15 minutes                             |
|                      |        | key was answered with                     |                                        |
| ends:<node>          | list   | sids of its sessions that are to end      | once it takes them, else 10 minutes    |
| boxcmd:<sid>:<id>    | string | the command was begun in the box          | at the box's last moment               |

Scripts build `live:<node>` from the session's own node field, so this needs one Redis (or one primary with
replicas), not a Redis Cluster.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """Names under one prefix; tests use their own."""

    prefix: str = "sandbox:"

    def session(self, sid: str) -> str:
        """The session's record."""
        return f"{self.prefix}session:{sid}"

    def live(self, node: str) -> str:
        """The node's sessions that still own something."""
        return f"{self.prefix}live:{node}"

    @property
    def nodes(self) -> str:
        """All nodes."""
        return f"{self.prefix}nodes"

    def node(self, node: str) -> str:
        """The node's heartbeat."""
        return f"{self.prefix}node:{node}"

    @property
    def placed(self) -> str:
        """Sessions on their way to each node."""
        return f"{self.prefix}placed"

    def images(self, node: str) -> str:
        """What the node told of its images."""
        return f"{self.prefix}images:{node}"

    def holders(self, image: str) -> str:
        """The nodes that have `<kind>:<image>`."""
        return f"{self.prefix}holders:{image}"

    def wishes(self, node: str) -> str:
        """Instances announced to the node."""
        return f"{self.prefix}wishes:{node}"

    def drain(self, node: str) -> str:
        """The node was asked to drain."""
        return f"{self.prefix}drain:{node}"

    @property
    def boots(self) -> str:
        """Each node's present boot."""
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
        """Which action an idempotency key stands for."""
        return f"{self.prefix}replies:{sid}"

    def pending(self, node: str) -> str:
        """Acknowledged actions on their way to SQL."""
        return f"{self.prefix}pending:{node}"

    def rejected(self, node: str) -> str:
        """Acknowledged actions that SQL refuses."""
        return f"{self.prefix}rejected:{node}"

    def undo(self, sid: str) -> str:
        """Order of the editor's remembered texts."""
        return f"{self.prefix}undo:{sid}"

    def undo_text(self, sid: str) -> str:
        """The editor's remembered texts."""
        return f"{self.prefix}undotext:{sid}"

    def image_uses(self, node: str) -> str:
        """When the node's images were used last."""
        return f"{self.prefix}imageuse:{node}"

    def box(self, sid: str) -> str:
        """What a box is beyond its session."""
        return f"{self.prefix}box:{sid}"

    def box_token(self, digest: str) -> str:
        """Which box an access token opens."""
        return f"{self.prefix}boxtoken:{digest}"

    def box_runs(self, sid: str) -> str:
        """The commands that have been running in a box for some time."""
        return f"{self.prefix}boxruns:{sid}"

    def box_key(self, digest: str) -> str:
        """Which box a create with an idempotency key made."""
        return f"{self.prefix}boxkey:{digest}"

    def box_command(self, sid: str, command: str) -> str:
        """The command was begun in the box."""
        return f"{self.prefix}boxcmd:{sid}:{command}"

    def run_owner(self, run: str) -> str:
        """Whose the run is."""
        return f"{self.prefix}runowner:{run}"

    @property
    def run_leases(self) -> str:
        """Until when runs live."""
        return f"{self.prefix}runleases"

    def start(self, digest: str) -> str:
        """What a start was answered with."""
        return f"{self.prefix}start:{digest}"

    def ends(self, node: str) -> str:
        """Sessions of the node that are to end."""
        return f"{self.prefix}ends:{node}"

    def gradings(self, node: str) -> str:
        """The gradings that the node is the first to be asked for."""
        return f"{self.prefix}gradings:{node}"

    def submitted(self, sid: str) -> str:
        """Mark of a session whose grading is in a stream."""
        return f"{self.prefix}submitted:{sid}"

    def graded(self, sid: str) -> str:
        """Channel: the session's verdict is in SQL."""
        return f"{self.prefix}graded:{sid}"

    def awaited(self, node: str) -> str:
        """Channel: sids that somebody on another node waits for."""
        return f"{self.prefix}awaited:{node}"
