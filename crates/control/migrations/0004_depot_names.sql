-- Names that depots registered, in lower case, and the keys that they belong to until the operator
-- releases them.
CREATE TABLE depot_names (
    name TEXT NOT NULL PRIMARY KEY,
    -- As it was registered.
    shown TEXT NOT NULL,
    key TEXT NOT NULL,
    since BIGINT NOT NULL
);
CREATE INDEX depot_names_by_key ON depot_names (key);
