// Store of all known jobs, updated by lists and events. Of two versions of a job, the one with the
// greater `change` is newer, so they may arrive in any order.

import type { Job, JobAction, JobPage, JobProgress, JobState } from '../api/types';

const ENDED: readonly JobState[] = ['done', 'failed', 'cancelled'];
/** Order of states in the queue: running jobs come first. */
const ORDER: Record<JobState, number> = {
  running: 0,
  split: 0,
  waiting: 1,
  queued: 2,
  paused: 3,
  done: 4,
  failed: 4,
  cancelled: 4,
};

export const ACTIVE_STATES: readonly JobState[] = ['running', 'split', 'waiting', 'queued', 'paused'];

/** Filter of the history, by final state. */
export type HistoryFilter = 'all' | 'done' | 'failed' | 'cancelled';

export function hasEnded(job: Job): boolean {
  return ENDED.includes(job.state);
}

/** Returns true if the job, or one of its parts, is running. */
export function isUnderWay(job: Job): boolean {
  return job.state === 'running' || job.state === 'split';
}

/** Loaded range of the history for a filter. All jobs with the number `down` or above are known. */
interface LoadedRange {
  down: number;
  next: number | null;
}

export class JobStore {
  #jobs = new Map<number, Job>();
  /** Parts of split jobs. The lists show only the jobs themselves. */
  #parts = new Map<number, Job>();
  #loaded = new Map<HistoryFilter, LoadedRange>();
  /** Jobs that ended while the page was open. The history shows them whatever their age. */
  #endedHere = new Set<number>();
  #lastChange: number | null = null;

  /** Greatest change seen, after which the event stream continues. */
  get lastChange(): number | null {
    return this.#lastChange;
  }

  get(id: number): Job | undefined {
    return this.#jobs.get(id);
  }

  /** Returns the known parts of a job, sorted by number. */
  partsOf(id: number): Job[] {
    return [...this.#parts.values()].filter((part) => part.part?.job === id).sort((a, b) => a.id - b.id);
  }

  /** Stores a version of a job. Returns false if a newer one is known. */
  put(job: Job): boolean {
    const kept = job.part === null || job.part === undefined ? this.#jobs : this.#parts;
    const known = kept.get(job.id);
    if (known !== undefined && known.change > job.change) return false;
    if (kept === this.#parts) {
      this.#parts.set(job.id, job);
      this.#lastChange = Math.max(this.#lastChange ?? 0, job.change);
      return true;
    }
    if (known !== undefined && !hasEnded(known) && hasEnded(job)) this.#endedHere.add(job.id);
    this.#jobs.set(job.id, job);
    this.#lastChange = Math.max(this.#lastChange ?? 0, job.change);
    return true;
  }

  /** Stores the progress of a job. Returns false if the job is not known to be running. */
  progress({ id, progress, parts }: JobProgress): boolean {
    const kept = this.#parts.has(id) ? this.#parts : this.#jobs;
    const job = kept.get(id);
    if (job === undefined || !isUnderWay(job)) return false;
    // Progress of the parts does not apply to the job's own run, nor the reverse.
    if ((job.state === 'split') !== (parts !== null && parts !== undefined)) return false;
    kept.set(id, { ...job, progress, ...(parts ? { parts } : {}) });
    return true;
  }

  remove(id: number): void {
    this.#jobs.delete(id);
    for (const part of this.partsOf(id)) this.#parts.delete(part.id);
  }

  /** Stores a page of the history that was requested with this filter. */
  putPage(filter: HistoryFilter, page: JobPage): void {
    for (const job of page.items) this.put(job);
    const oldest = page.items[page.items.length - 1]?.id;
    const next = page.next ?? null;
    const down = next === null ? 0 : (oldest ?? next);
    const before = this.#loaded.get(filter);
    // Reading the first page again after a reconnection keeps the pages below it.
    if (before === undefined || down < before.down) this.#loaded.set(filter, { down, next });
  }

  /**
   * Returns the start of the next page: undefined before the first page, null after the last one.
   */
  next(filter: HistoryFilter): number | null | undefined {
    return this.#loaded.get(filter)?.next;
  }

  /** Resets the history unless the first page after a gap reaches the jobs known before. */
  meetPage(filter: HistoryFilter, page: JobPage, newestKnown: number | null): void {
    const oldest = page.items[page.items.length - 1]?.id;
    if (newestKnown !== null && oldest !== undefined && oldest > newestKnown && (page.next ?? null) !== null) {
      this.#loaded.clear();
    }
    this.putPage(filter, page);
  }

  /** Returns the greatest job number. */
  newest(): number | null {
    let newest: number | null = null;
    for (const id of this.#jobs.keys()) if (newest === null || id > newest) newest = id;
    return newest;
  }

  /** Returns the jobs that have not ended: running ones first, then by priority and age. */
  active(): Job[] {
    return [...this.#jobs.values()]
      .filter((job) => !hasEnded(job))
      .sort(
        (a, b) =>
          ORDER[a.state] - ORDER[b.state] || (b.request.priority ?? 0) - (a.request.priority ?? 0) || a.id - b.id,
      );
  }

  /** Returns ended jobs, newest first, as far as the history was read without gaps. */
  history(filter: HistoryFilter): Job[] {
    const down = this.#loaded.get(filter)?.down ?? Infinity;
    const all = this.#loaded.get('all')?.down ?? Infinity;
    const from = Math.min(down, all);
    return [...this.#jobs.values()]
      .filter((job) => hasEnded(job) && (job.id >= from || this.#endedHere.has(job.id)) && (filter === 'all' || job.state === filter))
      .sort((a, b) => b.id - a.id);
  }
}

export type Action = JobAction | 'forget';

/** Returns the actions that the state of a job allows. */
export function actionsFor(job: Job): Action[] {
  switch (job.state) {
    case 'running':
    case 'split':
      if (job.stopping === 'cancel') return [];
      return job.stopping === 'pause' ? ['cancel'] : ['pause', 'cancel'];
    case 'queued':
      return ['pause', 'cancel'];
    case 'waiting':
      return ['retry', 'pause', 'cancel'];
    case 'paused':
      return ['resume', 'cancel'];
    case 'failed':
    case 'cancelled':
      return ['retry', 'forget'];
    case 'done':
      return ['forget'];
  }
}

/** Returns the title of a job: its label, or its source and destination. */
export function jobTitle(job: Job): { label: string | null; from: string; more: number; to: string } {
  const { sources, destination, label } = job.request;
  return { label: label ?? null, from: sources[0] ?? '', more: Math.max(0, sources.length - 1), to: destination };
}
