"""The numbers by which Python and the compiled functions understand each other.  This module does not load Numba."""

from __future__ import annotations

from typing import Final

CONSTANT, SCHEMA, TABLE, COMMIT_TS, EVENT_MS, EVENT_SECOND, NUMBER, STRING, MOMENT, SAME, ANY = range(11)
VALUE, SCALAR, KEY_END, COORDINATE, FILE_NUMBER, FILE_POSITION, SENT_MS, BATCH, OLD, ROW_OF_EVENT = range(11, 21)
"""What a step does.

CONSTANT: compares bytes: where they begin in the constants, and how many they are.
SCHEMA, TABLE: compare the name of the message's kind.
COMMIT_TS: reads a TSO.
NUMBER, STRING: pass an integer or a string.
MOMENT: notes where a string is.
SAME: passes an object with these members in any order: the first member, their number, the size of their slots.
ANY: passes an object of strings, integers, booleans and nulls.
VALUE: notes a column's value: what its usual strings are, what its other usual values are, the image.
EVENT_MS, EVENT_SECOND: read milliseconds since 1970 as a TSO; the second one takes the whole second of them.
SCALAR: passes a string, an integer, a boolean or null.
OLD: passes an old row that may lack columns: its first member, their number, and the first value of the new row.  A
step VALUE for each column follows, which is not walked.
KEY_END: is where the message's key ends and its value begins.
COORDINATE, FILE_NUMBER, FILE_POSITION, SENT_MS, BATCH: read digits into a number of the message's place, whose column
is the first number; those of a file's number and of a position in it make one number together, and those of a moment
and of a batch.
ROW_OF_EVENT: reads the number of a row in its event of the binlog into the column INDEX: twice it, and the
first number.
"""
AVRO_TEXT, AVRO_BOOLEAN, AVRO_INT, AVRO_LONG, AVRO_FLOAT, AVRO_DOUBLE, AVRO_STRING, AVRO_BYTES = range(8)
AVRO_NULLABLE, AVRO_SAME, AVRO_KEY_AS_IT_IS, AVRO_KEY_END, AVRO_END, AVRO_UNREADABLE = range(8, 14)
"""What a step of a schema in Avro does: it writes a constant, where that begins and how many bytes it has; reads a
value of a type and writes it; reads a union, where 0 or 2 stands for null, and goes on at a step behind it then;
compares bytes with a constant; copies the key; ends the key or the value; refuses the message.
"""
NULL, PLAIN, WITH_EXPONENT, IN_QUOTES, ESCAPED, FROM_BASE64, BYTES_OF_LATIN1, BYTES_OF_BASE64, CONVERTED = range(9)
FROM_ZONED, FROM_DAYS, FROM_MILLIS, FROM_MICROS, FROM_UNSCALED = range(9, 14)
"""How a value becomes a literal: it is NULL; as it stands; with an exponent of 0; in quotation marks; in quotation
marks, and escaped as SQL does; the same after it is decoded; as bytes; as bytes after it is decoded; by its column's
converter; from a time with its zone, from days, milliseconds or microseconds since 1970, or from an unscaled number.
The last five have at most LONGEST_MADE bytes."""
LONGEST_MADE: Final = 32
TEXT, BASE64, LATIN1, BYTES_IN_BASE64 = range(4)
INTEGER, NATURAL, DECIMAL, DOUBLE, INTEGER_OR_DOUBLE, DATE, DATETIME, TIME, UNUSUAL = range(4, 13)
JSON_TEXT, ZONED, DAYS, MILLIS, MICROS = range(13, 18)
UNSCALED: Final = 100
"""What the usual values of a column are; with UNUSUAL, its converter converts each.  The
scale of a DECIMAL that comes unscaled is added to UNSCALED."""
LARGEST_SCALE: Final = 18
READY, LEFT, NATURAL_OF_NUMBER, DOUBLE_OF_NUMBER, DECIMAL_OF_DOUBLE = range(5)
MILLISECONDS, MICROSECONDS, DOCUMENT, TEXT_OF = range(5, 9)
"""What the usual raw literals of a column are (`values.column_types`): READY needs nothing, LEFT its converter."""
FITS_ANY, FITS_QUOTED, FITS_CHAR, FITS_WHOLE, FITS_NUMBER, FITS_REAL = range(6)
FITS_YEAR, FITS_DATE, FITS_DATETIME, FITS_TIME, FITS_NULL = range(6, 11)
"""Which literals a column surely stores unchanged, besides NULL: all; those in quotation marks; these without blanks at
the end; integers; numbers; numbers of at most 15 digits; years; dates; with a fraction of so many digits at most, dates
with a time, and times; none."""
NOT_READ: Final = -1
"""Stands for a message that is not of its template, and for a value that its converter refuses."""
MARK: Final = ord('"')
"""The quotation mark of a JSON string."""

PLACE_NUMBERS: Final = 5
"""The most numbers of a place, and that of INDEX."""
INDEX: Final = PLACE_NUMBERS - 1
"""The column of an event's index among the numbers of its place."""
PLACEHOLDERS: Final = (b"__debezium_unavailable_value", b"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
"""Strings that Debezium's connector may write for a value that it does not have (`protocols.debezium.decoder`)."""
