// Types of the API, from the schema that is generated from `openapi.json`.

import type { components, paths } from './schema';

type Schemas = components['schemas'];

export type Job = Schemas['Job'];
export type JobState = Schemas['JobState'];
export type JobPage = Schemas['JobPage'];
export type JobRequest = Schemas['JobRequest'];
export type JobProgress = Schemas['JobProgress'];
export type Progress = Schemas['Progress'];
export type AgentInfo = Schemas['AgentInfo'];

export type Place = Schemas['Place'];
export type PlaceList = Schemas['PlaceList'];
export type PlaceRoot = Schemas['PlaceRoot'];
export type PlaceTest = Schemas['PlaceTest'];
export type Entry = Schemas['FileEntry'];
export type EntryKind = Schemas['FileKind'];
export type FilePage = Schemas['FilePage'];
export type NewDirectory = Schemas['NewDirectory'];
export type NewName = Schemas['NewName'];
export type Removal = Schemas['Removal'];
export type Ticket = Schemas['Ticket'];

type PostOfJob<Path> = Path extends keyof paths & `/api/v1/jobs/{id}/${infer Name}` ? (paths[Path] extends { post: object } ? Name : never) : never;
/** Actions of a job: the paths below its URL that accept POST. */
export type JobAction = PostOfJob<keyof paths>;
