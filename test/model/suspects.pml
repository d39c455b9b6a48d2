/*
 * Who is blamed when a process is lost with the steps that it ran.
 *
 * The first KILLERS of N steps end every process that runs them, at some moment; LOST processes are lost
 * for reasons of their own. Each `atomic` is one transaction: the claim by the rule of workers, the report,
 * and the judgement of one claim whose lease has ended, in whatever order leases end. README.md says how to run it.
 */

#ifndef KILLERS
#define KILLERS 1
#endif
#ifndef LOST
#define LOST 0
#endif
#ifndef N
#define N 4
#endif
#define W 2 /* processes at a time */
#define PERMITS 2
#define MAX_CRASHES 3
#define SUSPECTED_FROM 2
#define MAX_LOSSES 10

#define waits   0
#define done    (W + 1)
#define given_up (W + 2)
#define RUNS(w) (w + 1) /* under way in it; of a lost process until its lease ends */
#define KILLS(s) (s < KILLERS)

byte place[N];   /* waits, RUNS(w), done or given_up */
byte losses[N];  /* without being blamed */
byte crashes[N]; /* blamed */
byte kills[N];   /* ghost: of processes */
bit  lost[W];    /* and its successor has not begun */
byte faults = LOST;

byte i; /* of the inlines, each within one atomic; 0 between them */
byte held, before, suspects;

/* what a process has under way: steps, those that were lost before, and the suspects among them */
inline count(w) {
	held = 0; before = 0; suspects = 0;
	for (i : 0 .. N - 1) {
		if
		:: place[i] == RUNS(w) ->
			held++;
			if
			:: losses[i] > 0 -> before++
			:: else
			fi;
			if
			:: losses[i] >= SUSPECTED_FROM -> suspects++
			:: else
			fi
		:: else
		fi
	}
	i = 0
}

/* the rule of workers */
#ifdef TWO_SUSPECTS
#define MAY(s) true
#else
#ifdef BESIDE_LOST /* one suspect, beside steps that were lost once */
#define MAY(s) (losses[s] < SUSPECTED_FROM || suspects == 0)
#else
#define MAY(s) (losses[s] == 0 || losses[s] < SUSPECTED_FROM && suspects == 0 || before == 0)
#endif
#endif

inline forget() { held = 0; before = 0; suspects = 0 }

inline judge(w, s) {
	count(w);
	if
	:: losses[s] >= SUSPECTED_FROM && suspects == 1 ->
		crashes[s]++;
		if
		:: crashes[s] >= MAX_CRASHES ->
			assert(KILLS(s)); /* no innocent is given up */
			place[s] = given_up
		:: else -> place[s] = waits
		fi
#ifdef OTHERS_FREE /* a loss that another is blamed for does not count */
	:: suspects == 1 && losses[s] < SUSPECTED_FROM -> place[s] = waits
	:: else ->
		losses[s]++;
		place[s] = waits
#else
	:: else ->
		losses[s]++;
		assert(losses[s] < MAX_LOSSES); /* somebody is blamed in time */
		place[s] = waits
#endif
	fi;
	forget()
}

/* what may happen to a step in a process */
#define STEP(s) \
	:: atomic { !lost[w] && place[s] == waits -> \
		count(w); \
		if \
		:: held < PERMITS && MAY(s) -> place[s] = RUNS(w) \
		:: else \
		fi; \
		forget() \
	   } \
	:: atomic { !lost[w] && place[s] == RUNS(w) && !KILLS(s) -> place[s] = done } \
	:: atomic { !lost[w] && place[s] == RUNS(w) && KILLS(s) -> \
		kills[s]++; \
		assert(kills[s] <= MAX_CRASHES + SUSPECTED_FROM); \
		lost[w] = 1 \
	   } \
	:: atomic { lost[w] && place[s] == RUNS(w) -> judge(w, s) }

active [W] proctype Process() {
	byte w = _pid;
	do
	STEP(0)
	STEP(1)
	STEP(2)
#if N > 3
	STEP(3)
#endif
	:: atomic { !lost[w] && faults > 0 -> faults--; lost[w] = 1 }
	:: atomic { lost[w] ->
		count(w);
		if
		:: held == 0 -> lost[w] = 0 /* its successor */
		:: else
		fi;
		forget()
	   }
	od
}
