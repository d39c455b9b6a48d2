/*
 * The protocol between the board, the workers and the orchestrators.
 *
 * README.md says how to read and run this. Every `atomic` that touches the
 * board is one transaction of the code; everything a process remembers between
 * two of them is lost when it crashes. An action that changes nothing (an empty
 * poll, a heartbeat without a change) is no transition here.
 *
 * Set from outside: MODE, PLAN, FAULTS, and at most one way to break it.
 */

/* Deployment modes, of all replicas. */
#define PollingOnly     1
#define EventDrivenOnly 2
#define Hybrid          3
#define Mixed           4 /* the first of each kind Hybrid, the others EventDrivenOnly */

/* Workloads. */
#define Chain 1 /* one task; its second step waits for the first: one row */
#define Pair  2 /* one task; both steps at once: rows of their own */
#define Two   3 /* two tasks of one step each */
#define Apart 4 /* the same, and each worker has the handler of one of the steps alone */

#ifndef MODE
#define MODE EventDrivenOnly
#endif
#ifndef PLAN
#define PLAN Chain
#endif
#ifndef FAULTS
#define FAULTS 1
#endif

#define POLLS(r) (MODE != EventDrivenOnly && (MODE != Mixed || r == 0)) /* a replica */
#define LISTENS  (MODE != PollingOnly)

#define W 2 /* workers, with one permit each */
#define O 2 /* orchestrators */
#define N 2 /* steps */

#if PLAN == Two || PLAN == Apart
#define T 2
#define TASK(s) (s)
#else
#define T 1
#define TASK(s) 0
#endif

#define CAN(w, s) (PLAN != Apart || w == s) /* the steps that the worker has handlers for */

/* Ways to break it; see README.md. */
#ifdef NO_TOKEN
#define FENCE(w, s) (board[s] == in_progress)
#else
#ifdef LATE_REPORT /* the state is not checked, and a requeued step keeps its token */
#define FENCE(w, s) (board[s] != absent && token[s] == w_token[w])
#else
#define FENCE(w, s) (board[s] == in_progress && token[s] == w_token[w])
#endif
#endif
#ifdef NO_LOCK
#define FREE(t)     true
#define MINE(o, t)  true
#define TAKE(o, t)  skip
#else
#define FREE(t)     (lock[t] == 0)
#define MINE(o, t)  (lock[t] == 1 + o)
#define TAKE(o, t)  lock[t] = 1 + o
#endif
#ifdef SETTLE_UNLOCKED
#define SETTLES(t) true
#define HOLD(w, t) skip
#else
#define SETTLES(t) (lock[t] == 0)
#define HOLD(w, t) lock[t] = 1 + O + w
#endif
#ifdef NO_SWEEP
#define LOST(s) false
#else
#define LOST(s) (board[s] == in_progress && passed[s] && !HELD(s)) /* sweeps skip locked rows */
#endif

/* Kinds of faults; a run of a broken variant allows those it needs. */
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef FAILURES
#define FAILURES 1
#endif
#ifndef SLOW
#define SLOW 1
#endif

mtype = {
	/* a row of the board, or none */
	absent, scheduled, claimable, in_progress, reported,
	/* the progress of a step */
	waiting, on_board, complete, failed_for_good, removed,
	/* a task */
	not_created, live, ended, cancelled,
	/* the outcome of an attempt */
	none, success, failed, permanent, lease_lost,
	/* the state of a worker */
	idle, working, gone, reporting, settling, signalling, offering,
	/* and of an orchestrator */
	locking, taken
};

/* ---- the database; its state survives every crash ---- */

mtype board[N] = absent;
mtype outcome[N] = none;
byte  token[N];                 /* drawn by the latest claim; null in the database unless in progress or reported */
bit   passed[N];                /* lease_until or due_at has passed, by the database's clock */
mtype progress[N] = waiting;    /* workflow.Progress in the task's row */
mtype task[T] = not_created;
byte  lock[T];                  /* of the task's row: 0, or 1 + the orchestrator whose transaction holds it, or 1 + O + the worker */

/* ---- the memory of the daemons ---- */

bit   w_up[W] = 1;
bit   w_connected[W] = 1;       /* its listener is connected */
bit   w_wake[W];                /* a look is pending, or owed until there is room */
mtype w_doing[W] = idle;
byte  w_step[W];                /* of its claim */
byte  w_token[W];
mtype w_outcome[W] = none;

bit   o_up[O] = 1;
bit   o_connected[O] = 1;
bit   o_wake[O];                /* a look for reports is pending */
bit   o_timer[O];               /* a look for due work is pending, or its timer is set; a polling replica needs none, as a poll may come at any moment */
mtype o_doing[O] = idle;        /* the apply loop */
bit   o_read[8];                /* o * N + s: it has read this report; O + w is a worker that settles */
bit   o_signal_work[O];         /* signals that its last commit has to send */
bit   o_signal_due[O];
mtype o_sweep[O] = idle;        /* the readiness loop: idle, signalling (reports), offering (work to workers) */

byte  c_via;                    /* 1 + the orchestrator that has to signal a creation */

byte  faults = FAULTS;          /* how many may still happen */

/* ---- ghost variables; only assertions read them ---- */

byte  holder[N];                /* 1 + the worker behind the fence; 0 as soon as the claim has ended */
bit   accepted[N];              /* a result of the present attempt was accepted */

#define ENDED(t)       (task[t] == ended || task[t] == cancelled)
#define SETTLED(s)     (progress[s] != waiting && progress[s] != on_board)
#define ANY(p)         (p(0) || p(1))
#define CLAIMABLE(s)   (board[s] == claimable)
#define REPORTED(s)    (board[s] == reported)
#define TAKEABLE(s)    (board[s] == reported && FREE(TASK(s)))
#define TIMED(s)       (board[s] == scheduled || board[s] == in_progress)
#define DUE(s)         (LOST(s) || (board[s] == scheduled && passed[s]))
#define OURS(w)        (board[w_step[w]] == in_progress && token[w_step[w]] == w_token[w])
#define HOLDS(w)       (w_up[w] && (w_doing[w] == working || w_doing[w] == reporting || w_doing[w] == settling))
#define HELD(s)        ((w_doing[0] == settling && w_step[0] == s) || (w_doing[1] == settling && w_step[1] == s))
#define KEPT(s)        ((HOLDS(0) && w_step[0] == s && OURS(0)) || (HOLDS(1) && w_step[1] == s && OURS(1)))

#define UNSIGNALLED_WORKER(w)       (w_up[w] && w_connected[w] && !w_wake[w])
#define UNSIGNALLED_ORCHESTRATOR(o) (o_up[o] && o_connected[o] && !o_wake[o])

#define READ(o, s)     o_read[(o) * N + (s)]
#define GOOD(s)        ((board[s] != absent) == (progress[s] == on_board) && (!ENDED(TASK(s)) || SETTLED(s) || progress[s] == waiting) \
                        && (task[TASK(s)] == live || board[s] == absent))

#define DONE           (ENDED(0) && ENDED(T - 1))

/* Every transaction ends with this: no finished step is on the board.
   When all tasks have ended, further faults need not be searched. */
inline consistent() {
	assert(GOOD(0) && GOOD(1));
	if :: DONE -> faults = 0 :: else fi
}

/* ---- signals ---- */

/* Each receiver gets the signal or does not; equal pending signals are merged. */
inline deliver(wake) {
	if
	:: wake = 1
	:: LOSSES && faults > 0 && !wake -> faults--
	fi
}

inline signal_workers() {
	if :: LISTENS && w_up[0] && w_connected[0] -> deliver(w_wake[0]) :: else fi;
	if :: LISTENS && w_up[1] && w_connected[1] -> deliver(w_wake[1]) :: else fi
}

inline signal_orchestrators() {
	if :: LISTENS && o_up[0] && o_connected[0] -> deliver(o_wake[0]) :: else fi;
	if :: LISTENS && o_up[1] && o_connected[1] -> deliver(o_wake[1]) :: else fi
}

inline signal_timers() {
	if :: LISTENS && !POLLS(0) && o_up[0] && o_connected[0] -> deliver(o_timer[0]) :: else fi;
	if :: LISTENS && !POLLS(1) && o_up[1] && o_connected[1] -> deliver(o_timer[1]) :: else fi
}

/* ---- the worker ---- */

inline clear_claim(w) { w_step[w] = 0; w_token[w] = 0; w_outcome[w] = none }

inline drop_claim(w) { w_doing[w] = idle; clear_claim(w) }

inline end_claim(s) { holder[s] = 0 }

/* store.Claim: one statement. */
inline claim(w, s) {
	assert(task[TASK(s)] == live && progress[s] == on_board && CAN(w, s));
	board[s] = in_progress; token[s]++; passed[s] = 0; accepted[s] = 0;
	w_wake[w] = LISTENS; /* all it had room for: another look is pending */
	if
	:: w_doing[w] = working; w_step[w] = s; w_token[w] = token[s]; holder[s] = 1 + w
	:: LOSSES && faults > 0 -> faults-- /* the answer is lost: no worker knows of the claim */
	fi;
	consistent()
}

/* store.Report: one statement, one report. */
inline report(w, s) {
	if
	:: FENCE(w, s) ->
		assert(holder[s] == 1 + w);                   /* the fence rejects lost claims */
		assert(!accepted[s]);                         /* one result per attempt */
		assert(task[TASK(s)] == live);                /* none for a task that has ended */
		board[s] = reported; outcome[s] = w_outcome[w]; passed[s] = 0;
		accepted[s] = 1; end_claim(s);
		if
		:: w_doing[w] = (LISTENS -> signalling : idle); clear_claim(w)
		:: LOSSES && faults > 0 -> faults--           /* the answer is lost: it is repeated */
		fi
	:: else -> drop_claim(w)                              /* stale */
	fi;
	consistent()
}

/* Shared by settling and applying: see the orchestrator. */
inline leave_board(s, p) { progress[s] = p; board[s] = absent; outcome[s] = none }

/* The task ends when none of its steps can move. */
inline finish(t) {
	if
	:: task[t] == live && (T == 2 -> progress[t] != on_board : progress[0] != on_board && progress[1] != on_board) -> task[t] = ended
	:: else
	fi
}

inline succeed(w, s) {
	assert(holder[s] == 1 + w);
	assert(!accepted[s]);
	assert(task[TASK(s)] == live);
	accepted[s] = 1; passed[s] = 0; end_claim(s)
}

/* store.Settle, of the only live step: one statement. The next step is claimed
   with it, or made claimable where an older step waits. */
inline settle_lone(w, s) {
	if
	:: FENCE(w, s) ->
		succeed(w, s);
		leave_board(s, complete);
		if
		:: PLAN == Chain && s == 0 ->
			progress[1] = on_board;
			if
			:: board[1] = in_progress; token[1]++; passed[1] = 0; accepted[1] = 0;
				if
				:: w_doing[w] = working; w_step[w] = 1; w_token[w] = token[1]; w_outcome[w] = none; holder[1] = 1 + w
				:: LOSSES && faults > 0 -> faults-- /* the answer is lost: no worker knows of the claim */
				fi
			:: board[1] = claimable;
				if
				:: w_doing[w] = (LISTENS -> offering : idle); clear_claim(w)
				:: LOSSES && faults > 0 -> faults--
				fi
			fi
		:: else ->
			if
			:: drop_claim(w)
			:: LOSSES && faults > 0 -> faults--
			fi
		fi;
		finish(TASK(s))
	:: else -> drop_claim(w)                              /* the report will detect it */
	fi;
	consistent()
}

/* store.ReportAndTake: locks the task, then reads its other report. */
inline settle_take(w, r) {
	HOLD(w, 0);
	READ(O + w, r) = REPORTED(r);
	w_doing[w] = settling
}

/* Taken.CommitFor: the report of the other step, r, is applied too. If that is no success,
   neither is applied: both are left to an orchestrator. */
inline settle_commit(w, s, r) {
	succeed(w, s);
	if
	:: READ(O + w, r) ->
		READ(O + w, r) = 0;
		assert(REPORTED(r));                          /* no orchestrator has applied it */
		if
		:: outcome[r] == success -> leave_board(s, complete); leave_board(r, complete); w_doing[w] = idle
		:: else -> board[s] = reported; outcome[s] = success; w_doing[w] = (LISTENS -> signalling : idle)
		fi
	:: else -> leave_board(s, complete); w_doing[w] = idle
	fi;
	finish(0);
	if :: lock[0] == 1 + O + w -> lock[0] = 0 :: else fi;
	clear_claim(w);
	consistent()
}

proctype Worker(byte w) {
	byte s, r;
	do
	:: atomic { w_up[w] && w_doing[w] == idle && (w_wake[w] || (POLLS(w) && ((CAN(w, 0) && CLAIMABLE(0)) || (CAN(w, 1) && CLAIMABLE(1))))) ->
		if
		:: CAN(w, 0) && CLAIMABLE(0) -> claim(w, 0)
		:: CAN(w, 1) && CLAIMABLE(1) -> claim(w, 1)
		:: else -> w_wake[w] = 0
		fi }
	:: atomic { w_up[w] && w_doing[w] == working -> s = w_step[w];
		if
		:: w_outcome[w] = success; w_doing[w] = reporting
		:: FAILURES && faults > 0 -> faults--; w_outcome[w] = failed; w_doing[w] = reporting
		:: FAILURES && faults > 0 -> faults--; w_outcome[w] = permanent; w_doing[w] = reporting
		:: SLOW && faults > 0 -> faults--; w_doing[w] = gone /* no heartbeat got through, by its own clock */
		:: SLOW && faults > 0 -> faults--;                   /* store.HandBack */
			if
			:: OURS(w) -> board[s] = claimable; passed[s] = 0; end_claim(s); consistent(); w_doing[w] = (LISTENS -> offering : idle); clear_claim(w)
			:: else -> drop_claim(w)
			fi
		fi;
#ifdef NOTIFY_EARLY
		if :: w_doing[w] == reporting -> signal_orchestrators() :: else fi;
#endif
		s = 0 }
	:: atomic { w_up[w] && w_doing[w] == gone -> /* the handler's context was cancelled; it returns, or succeeds nevertheless */
		if
		:: if :: holder[w_step[w]] == 1 + w -> end_claim(w_step[w]) :: else fi; drop_claim(w)
		:: w_outcome[w] = success; w_doing[w] = reporting
		fi }
	:: atomic { w_up[w] && w_doing[w] == reporting -> s = w_step[w]; report(w, s); s = 0 }
	:: atomic { w_up[w] && w_doing[w] == reporting && w_outcome[w] == success && PLAN != Pair && lock[TASK(w_step[w])] == 0 ->
		s = w_step[w]; settle_lone(w, s); s = 0 }
	:: atomic { w_up[w] && w_doing[w] == reporting && w_outcome[w] == success && PLAN == Pair && SETTLES(0) && FENCE(w, w_step[w]) ->
		r = 1 - w_step[w]; settle_take(w, r); r = 0 }
	:: atomic { w_up[w] && w_doing[w] == settling ->
		s = w_step[w]; r = 1 - s;
		if
		:: settle_commit(w, s, r)
		:: LOSSES && faults > 0 -> faults--;          /* rolled back: it is reported */
			if :: lock[0] == 1 + O + w -> lock[0] = 0 :: else fi;
			READ(O + w, r) = 0; w_doing[w] = reporting
		fi;
		s = 0; r = 0 }
	:: atomic { w_up[w] && w_doing[w] == signalling ->
#ifndef NOTIFY_EARLY
		signal_orchestrators();
#endif
		w_doing[w] = idle }
	:: atomic { w_up[w] && w_doing[w] == offering -> signal_workers(); w_doing[w] = idle }
	od
}

/* store.WorkerHeartbeat: extends the worker's claims, and returns those it has lost. */
proctype WorkerHeartbeat(byte w) {
	do
	:: atomic { HOLDS(w) && OURS(w) && passed[w_step[w]] -> passed[w_step[w]] = 0 }
	:: atomic { HOLDS(w) && w_doing[w] == working && !OURS(w) -> w_doing[w] = gone }
	od
}

/* ---- the orchestrator ---- */

inline put(s) { progress[s] = on_board; board[s] = claimable }

/* workflow.Advance for one report, and the change of its row. */
inline apply(o, s) {
	if
	:: READ(o, s) ->
		READ(o, s) = 0;
		assert(REPORTED(s));                          /* neither a worker nor another orchestrator has applied it */
		assert(task[TASK(s)] == live);
		if
		:: outcome[s] == success ->
			leave_board(s, complete);
			if
			:: PLAN == Chain && s == 0 -> put(1); o_signal_work[o] = 1
			:: else
			fi
		:: outcome[s] == permanent -> leave_board(s, failed_for_good)
		:: outcome[s] == failed -> board[s] = scheduled; outcome[s] = none; o_signal_due[o] = 1
		:: outcome[s] == lease_lost -> board[s] = claimable; outcome[s] = none; o_signal_work[o] = 1
		fi
	:: else
	fi
}

inline unlock(o) {
	if :: lock[0] == 1 + o -> lock[0] = 0 :: else fi;
	if :: lock[T - 1] == 1 + o -> lock[T - 1] = 0 :: else fi
}

inline take(o, t) {
	if
	:: FREE(t) && ((TASK(0) == t && REPORTED(0)) || (TASK(1) == t && REPORTED(1))) -> TAKE(o, t);
		if :: TASK(0) == t -> READ(o, 0) = REPORTED(0) :: else fi;
		if :: TASK(1) == t -> READ(o, 1) = REPORTED(1) :: else fi;
		o_doing[o] = taken
	:: else /* SKIP LOCKED, or no report */
	fi
}

proctype Apply(byte o) {
	do
	/* store.TakeReported: locks, then reads with a newer snapshot. A report that
	   arrives in between could as well have arrived before. For tasks with rows of
	   their own it returns which were locked, and the look is repeated until none is. */
	:: atomic { o_up[o] && o_doing[o] == idle &&
			((o_wake[o] && !(PLAN == Pair && ANY(REPORTED) && !ANY(TAKEABLE))) || (POLLS(o) && ANY(TAKEABLE))) ->
		o_wake[o] = 0;
#ifdef STALE_READ /* one statement: what it reads is older than the locks */
		READ(o, 0) = REPORTED(0); READ(o, 1) = REPORTED(1);
		if :: READ(o, 0) || READ(o, 1) -> o_doing[o] = locking :: else fi
#else
		take(o, 0);
		if :: T == 2 -> take(o, T - 1) :: else fi
#endif
#ifdef NOTIFY_EARLY
		;
		if :: o_doing[o] == taken -> signal_workers(); signal_timers() :: else fi
#endif
		}
#ifdef STALE_READ
	:: atomic { o_up[o] && o_doing[o] == locking && lock[0] == 0 -> lock[0] = 1 + o; o_doing[o] = taken }
#endif
	/* Taken.Commit. */
	:: atomic { o_up[o] && o_doing[o] == taken ->
		apply(o, 0); apply(o, 1);
		finish(0); finish(T - 1);
		unlock(o);
		consistent();
		o_doing[o] = (o_signal_work[o] || o_signal_due[o] -> signalling : idle) }
	/* After the commit. */
	:: atomic { o_up[o] && o_doing[o] == signalling ->
#ifndef NOTIFY_EARLY
		if :: o_signal_work[o] -> signal_workers() :: else fi;
		if :: o_signal_due[o] -> signal_timers() :: else fi;
#endif
		o_timer[o] = o_timer[o] || !POLLS(o); /* WakeIn: the due time */
		o_signal_work[o] = 0; o_signal_due[o] = 0;
		o_doing[o] = idle }
	od
}

/* store.ExpireLeases and store.PromoteDue. The timer stays set while any row
   has a time; a look that finds no such row clears it. */
inline sweep(o, s) {
	if
	:: LOST(s) -> board[s] = reported; outcome[s] = lease_lost; passed[s] = 0; end_claim(s); o_sweep[o] = signalling
	:: board[s] == scheduled && passed[s] -> board[s] = claimable; passed[s] = 0; o_sweep[o] = offering
	fi;
	consistent()
}

proctype Readiness(byte o) {
	do
	:: atomic { o_up[o] && o_sweep[o] == idle && ((o_timer[o] && !ANY(TIMED)) || ((o_timer[o] || POLLS(o)) && ANY(DUE))) ->
		if
		:: DUE(0) -> sweep(o, 0)
		:: DUE(1) -> sweep(o, 1)
		:: else -> o_timer[o] = 0
		fi }
	:: atomic { o_up[o] && o_sweep[o] == signalling -> o_wake[o] = 1; signal_orchestrators(); o_sweep[o] = idle }
	:: atomic { o_up[o] && o_sweep[o] == offering -> signal_workers(); o_sweep[o] = idle }
	od
}

/* store.ProcessorHeartbeat: sets the timer, and signals again for work that has
   waited long. The length of that time does not matter here. */
proctype Heartbeat(byte o) {
#ifdef NO_ATTENTION
	skip
#else
	do
	:: atomic { o_up[o] && !POLLS(o) && !o_timer[o] && ANY(TIMED) -> o_timer[o] = 1 }
	:: atomic { o_up[o] && LISTENS && ANY(CLAIMABLE) && ANY(UNSIGNALLED_WORKER) -> signal_workers() }
	:: atomic { o_up[o] && LISTENS && ANY(REPORTED) && ANY(UNSIGNALLED_ORCHESTRATOR) -> signal_orchestrators() }
	od
#endif
}

/* ---- the environment ---- */

/* Creates each task through any orchestrator. */
proctype Client() {
	byte t;
	do
	:: t < T ->
		atomic { o_up[0] || o_up[1] ->
			if :: o_up[0] -> c_via = 1 :: else -> c_via = 2 fi; /* they are alike */
			task[t] = live;
			put(t);
			if :: PLAN == Pair -> put(1) :: else fi;
			consistent();
			t++ }
		atomic {
			if
			:: c_via != 0 -> signal_workers(); o_timer[c_via - 1] = !POLLS((c_via - 1)) /* schedules a look for due work */
			:: else /* crashed meanwhile */
			fi;
			c_via = 0 }
	:: else -> break
	od;
}

/* Cancels the first task; waits for the transaction that locks it. No process
   can observe a state between its two statements. */
inline cancel() {
	task[0] = cancelled;
#ifdef CANCEL_KEEPS /* a running step stays on the board */
	if :: board[0] != in_progress && progress[0] == on_board -> leave_board(0, removed) :: else fi;
#else
	if :: progress[0] == on_board -> leave_board(0, removed); passed[0] = 0; end_claim(0) :: else fi;
	if :: T == 1 && progress[1] == on_board -> leave_board(1, removed); passed[1] = 0; end_claim(1) :: else fi;
	consistent();
#endif
}

/* The database's clock. The lease of a claim that no worker extends expires
   without a fault. */
proctype Clock() {
	do
	:: atomic { board[0] == scheduled && !passed[0] -> passed[0] = 1 }
	:: atomic { board[1] == scheduled && !passed[1] -> passed[1] = 1 }
	:: atomic { board[0] == in_progress && !passed[0] && !KEPT(0) -> passed[0] = 1 }
	:: atomic { board[1] == in_progress && !passed[1] && !KEPT(1) -> passed[1] = 1 }
	od
}

inline worker_dies(w) {
	faults--; w_up[w] = 0; w_wake[w] = 0; w_connected[w] = 1;
	if :: holder[w_step[w]] == 1 + w -> end_claim(w_step[w]) :: else fi;
	if :: lock[0] == 1 + O + w -> lock[0] = 0 :: else fi; /* the transaction rolls back */
	READ(O + w, 0) = 0; READ(O + w, 1) = 0;
	drop_claim(w)
}

inline orchestrator_dies(o) {
	faults--; o_up[o] = 0; o_wake[o] = 0; o_timer[o] = 0; o_connected[o] = 1;
	o_doing[o] = idle; o_sweep[o] = idle; o_signal_work[o] = 0; o_signal_due[o] = 0;
	READ(o, 0) = 0; READ(o, 1) = 0;
	unlock(o); /* the transaction rolls back */
	if :: c_via == 1 + o -> c_via = 0 :: else fi
}

/* Faults may happen; no process has to cause them. A cancellation counts as one. */
proctype Faults() {
	do
	:: atomic { faults > 0 && CRASHES && w_up[0] -> worker_dies(0) }
	:: atomic { faults > 0 && CRASHES && w_up[1] -> worker_dies(1) }
	:: atomic { faults > 0 && CRASHES && o_up[0] -> orchestrator_dies(0) }
	:: atomic { faults > 0 && CRASHES && o_up[1] -> orchestrator_dies(1) }
	:: atomic { faults > 0 && LISTENS && w_up[0] && w_connected[0] -> faults--; w_connected[0] = 0 }
	:: atomic { faults > 0 && LISTENS && w_up[1] && w_connected[1] -> faults--; w_connected[1] = 0 }
	:: atomic { faults > 0 && LISTENS && o_up[0] && o_connected[0] -> faults--; o_connected[0] = 0 }
	:: atomic { faults > 0 && LISTENS && o_up[1] && o_connected[1] -> faults--; o_connected[1] = 0 }
	:: atomic { faults > 0 && SLOW && board[0] == in_progress && !passed[0] && KEPT(0) -> faults--; passed[0] = 1 }
	:: atomic { faults > 0 && SLOW && board[1] == in_progress && !passed[1] && KEPT(1) -> faults--; passed[1] = 1 }
	:: atomic { faults > 0 && task[0] == live && lock[0] == 0 && (o_up[0] || o_up[1]) -> faults--; cancel() }
	:: atomic { faults > 0 -> faults = 0 } /* no more faults from now on */
	od
}

/* A daemon that died restarts and looks at everything; a daemon whose listener lost
   its connection reconnects, and then looks at everything. */
#ifdef NO_CATCHUP
#define CATCHUP(wake) skip
#else
#define CATCHUP(wake) wake = 1
#endif
#ifdef CATCHUP_FIRST /* looks first, subscribes then */
#define RECONNECT(connected, wake, step) atomic { !connected && !step -> CATCHUP(wake); step = 1 } :: atomic { !connected && step && !wake -> connected = 1; step = 0 }
#else
#define RECONNECT(connected, wake, step) atomic { !connected -> connected = 1; CATCHUP(wake) }
#endif

proctype Repair() {
#ifdef CATCHUP_FIRST
	bit sw0, sw1, so0, so1;
#endif
	do
	:: atomic { !w_up[0] -> w_up[0] = 1; w_wake[0] = 1 }
	:: atomic { !w_up[1] -> w_up[1] = 1; w_wake[1] = 1 }
	:: atomic { !o_up[0] -> o_up[0] = 1; o_wake[0] = 1; o_timer[0] = !POLLS(0) }
	:: atomic { !o_up[1] -> o_up[1] = 1; o_wake[1] = 1; o_timer[1] = !POLLS(1) }
	:: RECONNECT(w_connected[0], w_wake[0], sw0)
	:: RECONNECT(w_connected[1], w_wake[1], sw1)
	:: RECONNECT(o_connected[0], o_wake[0], so0)
	:: RECONNECT(o_connected[1], o_wake[1], so1)
	od
}

#ifndef LIVENESS
/* When no process can move any more, every task has ended. */
proctype Stuck() { timeout -> assert(DONE) }
#endif

init {
	atomic {
		run Worker(0); run Worker(1);
		run WorkerHeartbeat(0); run WorkerHeartbeat(1);
		run Apply(0); run Apply(1);
		run Readiness(0); run Readiness(1);
		run Heartbeat(0); run Heartbeat(1);
		run Clock(); run Faults(); run Repair(); run Client();
#ifndef LIVENESS
		run Stuck();
#endif
	}
}

#ifdef LIVENESS
#define LEAVES(s, state) ([] (board[s] == state -> <> (board[s] != state)))
ltl ends  { <> DONE }
ltl moves { LEAVES(0, claimable) && LEAVES(1, claimable) && LEAVES(0, reported) && LEAVES(1, reported) }
#endif
