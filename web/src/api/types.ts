// What the API takes and gives, as the generated schema has it.

import type { components } from './schema';

type Schemas = components['schemas'];

export type Job = Schemas['Job'];
export type JobState = Schemas['JobState'];
export type JobPage = Schemas['JobPage'];
export type JobRequest = Schemas['JobRequest'];
export type JobProgress = Schemas['JobProgress'];
export type Progress = Schemas['Progress'];
export type AgentInfo = Schemas['AgentInfo'];

// The agent leaves no field out: what may be absent is null.
export type Place = Schemas['Place'];
export type PlaceTest = Schemas['PlaceTest'];
export type EntryKind = Schemas['FileKind'];
export type Entry = Required<Schemas['FileEntry']>;
export interface FilePage extends Required<Schemas['FilePage']> {
  entries: Entry[];
}
