// What the API takes and gives. Jobs as the generated schema has them.

import type { components } from './schema';

type Schemas = components['schemas'];

export type Job = Schemas['Job'];
export type JobState = Schemas['JobState'];
export type JobPage = Schemas['JobPage'];
export type JobRequest = Schemas['JobRequest'];
export type JobProgress = Schemas['JobProgress'];
export type Progress = Schemas['Progress'];
export type AgentInfo = Schemas['AgentInfo'];

// The checked-in document does not describe places and files yet; these stand here until it does.

export interface Place {
  name: string;
  /** A location, which ends with a slash or a colon. */
  root: string;
  /** It cannot be changed or removed. */
  builtin: boolean;
}

export interface PlaceTest {
  ok: boolean;
  detail: string;
}

export type EntryKind = 'file' | 'directory' | 'symlink' | 'other';

export interface Entry {
  name: string;
  kind: EntryKind;
  bytes: number;
  mode: string | null;
  modified: string | null;
  /** Of a symbolic link: what it says. */
  target: string | null;
}

export interface FilePage {
  entries: Entry[];
  /** What to ask for as `after` for those that follow. */
  next: string | null;
}
