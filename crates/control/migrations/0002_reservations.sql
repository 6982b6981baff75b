-- What was promised to whom: an append-only journal, which is the truth about reservations. Numbers follow each other without a gap.
CREATE TABLE reservation_journal (
    number BIGINT NOT NULL PRIMARY KEY,
    -- Which writer wrote it: none writes any more when there is one of a higher epoch.
    epoch BIGINT NOT NULL,
    at BIGINT NOT NULL,
    content TEXT NOT NULL
);
-- The epoch of the newest writer.
INSERT INTO counters (name, value) VALUES ('reservation-epoch', 0);
